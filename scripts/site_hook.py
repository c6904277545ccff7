"""Puts pages of the repository that are no part of docs/ into the documentation site, see mkdocs.yml."""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parent.parent
COPIED = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "developer/contributing.md",
    "examples/README.md": "examples.md",
    "weights/README.md": "weights.md",
}  # a file of the repository -> its page
LINK = re.compile(r"\]\(([^):#\s]+\.md)(?=[)#])")


def adapted(text: str, source: str) -> str:
    """A file's text with links to files of the repository as links to the site's pages.

    Args:
        text: The text.
        source: Path of the file in the repository.
    """

    def link(found: re.Match[str]) -> str:
        return f"]({relpath(_page(normpath(join(dirname(source), found[1]))), dirname(_page(source)))}"

    return LINK.sub(link, text)


def _page(source: str) -> str:
    """The page of a file of the repository."""
    return COPIED.get(source, source.removeprefix("docs/"))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Called by MkDocs with the files of docs/."""
    from mkdocs.structure.files import File

    for source, page in COPIED.items():
        files.append(File.generated(config, page, content=adapted((ROOT / source).read_text(encoding="utf-8"), source)))
    return files


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Called by MkDocs with the text of each page."""
    copied = page.file.src_uri in COPIED.values()
    return markdown if copied else adapted(markdown, f"docs/{page.file.src_uri}")
