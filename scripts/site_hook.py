"""Adds the generated pages to the documentation site, see mkdocs.yml and scripts/reference_pages.py."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

GENERATED = Path(__file__).parent.parent / "runs" / "reference"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Called by MkDocs with the files of docs/."""
    for page in sorted(GENERATED.rglob("*.md")):
        files.append(File.generated(config, page.relative_to(GENERATED).as_posix(), abs_src_path=str(page)))
    return files
