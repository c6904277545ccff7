"""The Dockerfiles build from what is here, on images of the engines that the adapters were made for."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / "docker").glob("*.Dockerfile"))
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_is_copied_and_run_is_here(file: Path) -> None:
    lines = file.read_text().splitlines()
    sent = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [name for line in lines if line.startswith("COPY ") for name in line.split()[1:-1]]
    assert copied
    for name in copied:
        assert (ROOT / name).exists()
        assert name in sent
    for script in re.findall(r"^RUN (scripts/\S+)", "\n".join(lines), re.MULTILINE):
        assert (ROOT / script).exists()
        assert "scripts" in copied
        assert "requirements" in copied


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_image_is_of_a_version_that_is_served(engine: str) -> None:
    version = re.search(r"^ARG VERSION=v(\S+)$", (ROOT / "docker" / f"{engine}.Dockerfile").read_text(), re.MULTILINE)
    assert version is not None
    assert Requirement(EXTRAS[engine][0]).specifier.contains(version[1])
