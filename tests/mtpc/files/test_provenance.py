"""The commit in provenance: of this project's own sources, never of a repository that happens to lie around them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from mtpc.files import provenance

NAMED = ["-c", "user.name=someone", "-c", "user.email=someone@example.org"]


def git(folder: Path, *arguments: str) -> str:
    """Return the output of a git command in a folder."""
    return subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one file and one commit."""
    git(tmp_path, "init", "--quiet")
    (tmp_path / "essay.txt").write_text("of the user's own")
    git(tmp_path, "add", "essay.txt")
    git(tmp_path, *NAMED, "commit", "--quiet", "-m", "mine")
    return tmp_path


def install(folder: Path) -> Path:
    """A copy of the module that asks."""
    folder.mkdir(parents=True)
    return Path(shutil.copy(provenance.__file__, folder / "provenance.py"))


def test_a_tracked_source_has_the_commit_of_its_work_tree(repository: Path) -> None:
    source = install(repository / "plugins" / "mtpc")
    git(repository, "add", "plugins")
    git(repository, *NAMED, "commit", "--quiet", "-m", "the source")
    commit = git(repository, "rev-parse", "HEAD")
    assert provenance.commit_of(source) == commit
    (repository / "essay.txt").write_text("changed")
    assert provenance.commit_of(source) == f"{commit}+changes"


@pytest.mark.parametrize("ignored", [True, False])
def test_a_users_repository_around_an_environment_is_not_named(repository: Path, ignored: bool) -> None:
    (repository / ".gitignore").write_text(".venv\n" if ignored else "")
    source = install(repository / ".venv" / "lib" / "python3.11" / "site-packages" / "mtpc")
    assert provenance.commit_of(source) == "unknown"


def test_outside_of_git(tmp_path: Path) -> None:
    assert provenance.commit_of(install(tmp_path / "mtpc")) == "unknown"
