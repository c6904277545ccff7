"""A drafter or target is named by its folder or by its id on the Hub; a wrong name ends in one sentence."""

from __future__ import annotations

from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants, errors

from mtpc.errors import MTPCError
from mtpc.files.hub import CONFIG, is_hub_id, local_folder
from tests.support.hub_cache import COMMIT, cached, go_offline

PATHS = (
    "nowhere",
    "./owner/name",
    "../name",
    "~/name",
    "/owner/name",
    "a/b/c",
    "owner/",
    "",
    "owner/name:Q4_K_M",
    "s3://a/b",
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go offline, with an empty working directory and an empty cache."""
    go_offline(monkeypatch, tmp_path / "home")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """What is published."""
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / "config.json").write_text("{}")
    return tmp_path / "published"


def refused(name: str, revision: str | None = None) -> str:
    """The sentence."""
    with pytest.raises(MTPCError) as caught:
        local_folder(name, revision)
    message = str(caught.value)
    assert message.startswith(f"{name} is neither a folder nor available from the Hugging Face Hub: ")
    assert message.endswith(".")
    assert "\n" not in message
    return message


def test_folders_and_other_paths_stay(home: Path, repository: Path) -> None:
    cached(home, "owner/drafter", repository)
    for path in PATHS:
        assert not is_hub_id(path), path
        assert local_folder(path) == Path(path)
    Path("owner/drafter").mkdir(parents=True)
    assert local_folder("owner/drafter") == Path("owner/drafter")


def test_an_id_is_a_snapshot_of_the_cache(home: Path, repository: Path) -> None:
    other = COMMIT[::-1]
    snapshot, tagged = (
        cached(home, "owner/model", repository),
        cached(home, "owner/model", repository, other, ref="v1"),
    )
    for files in (CONFIG, ("*.json",)):
        assert local_folder("owner/model", files=files) == snapshot
        assert local_folder(Path("owner/model"), "v1", files) == tagged
        assert local_folder("owner/model", other, files) == tagged
    assert (tagged / "config.json").read_text() == "{}"


def test_what_is_not_cached_is_refused(home: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached(home, "owner/model", repository)
    assert "HF_HUB_OFFLINE is set, and its main branch is not complete in the cache" in refused("owner/other")
    assert "HF_HUB_OFFLINE is set, and v2 is not complete in the cache" in refused("owner/model", "v2")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
    assert "the Hub cannot be reached, and its main branch is not" in refused("owner/other")
    assert local_folder("owner/model").name == COMMIT  # cached, so that no network is needed


def test_what_the_hub_does_not_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = {
        errors.RepositoryNotFoundError: "the repository does not exist, or HF_TOKEN may not read it",
        errors.GatedRepoError: "the repository does not exist, or HF_TOKEN may not read it",
        errors.RevisionNotFoundError: "the repository has no revision 'v3'",
        PermissionError: "no such luck",
    }
    for kind, reason in cases.items():
        error = kind.__new__(kind, "no such luck")

        def download(*_: object, error: Exception = error, **__: object) -> str:
            raise error

        monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
        assert reason in refused("owner/drafter", "v3")
