"""Drafters of any method: SGLang's settings follow from their parts, and each wrong setting is one sentence."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

from mtpc.errors import MTPCError
from mtpc.methods import draft_methods, method_of
from sglang_mtpc import _worker, integration_points, served
from sglang_mtpc.algorithm import DrafterAlgorithm
from sglang_mtpc.shape import DraftShape, complete_settings
from tests.sglang_mtpc.resolving import refused, resolved
from tests.support.random_gumiho import make_gumiho
from tests.support.random_hybrid import make_between, make_subset

pytestmark = pytest.mark.usefixtures("loaded")
PATH = "--speculative-draft-model-path"


@pytest.fixture(autouse=True)
def kept_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exceptions are shown as they were."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)


@pytest.fixture(params=["drafter", "fastmtp", "hybrid", "echo"])
def folder(request: pytest.FixtureRequest) -> Path:
    """A drafter of each shape: a window alone, an autoregressive part alone, both, a text part."""
    directory: Path = request.getfixturevalue(request.param)
    return directory


def test_every_family_is_registered() -> None:
    names = {method.algorithm for method in draft_methods()}
    assert {"MTPC", "FASTMTP", "HYBRID", "ECHO"} <= names
    assert all(isinstance(SpeculativeAlgorithm.from_string(name), DrafterAlgorithm) for name in names)


def test_sglang_is_told_what_the_configuration_says(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = SimpleNamespace(speculative_draft_model_path=str(folder))
    monkeypatch.setattr(served, "get_spec", lambda: spec)
    method, autoregressive = (
        method_of(folder),
        json.loads((folder / "config.json").read_text())["num_hidden_layers"] > 0,
    )
    algorithm = SpeculativeAlgorithm.from_string(method.algorithm)
    assert algorithm.has_draft_kv() == algorithm.need_topk() == autoregressive
    other = "TextWorker" if method.reads_text else "ParallelWorker"
    assert _worker(None).__name__ == ("AutoregressiveWorker" if autoregressive else other)


def test_what_is_left_open_is_completed(target: Path, folder: Path) -> None:
    method = method_of(folder)
    config = method.read_config(folder)
    served_with = resolved(target, PATH, str(folder), algorithm=method.algorithm)
    assert served_with.speculative_num_steps == config.num_drafts
    assert served_with.speculative_num_draft_tokens == config.num_drafts + 1
    assert served_with.speculative_use_rejection_sampling


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--speculative-num-steps", "5"), "it must be a whole number from 1 to 4"),
        (
            ("--speculative-eagle-topk", "2", "--speculative-num-draft-tokens", "60"),
            "a draft tree of 59 nodes does not fit: depth 4, children 2 leave room for 30",
        ),
        (("--speculative-adaptive",), "The largest of candidate_steps (--speculative-adaptive-config) is 7, but with"),
        (("--speculative-token-map", "gone.json"), "gone.json is missing"),
        (("--tp-size", "4"), "which 4 tensor-parallel ranks cannot split evenly"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else None,
)
def test_settings_of_both_parts(target: Path, hybrid: Path, arguments: tuple[str, ...], sentence: str) -> None:
    refused(sentence, target, PATH, str(hybrid), *arguments, algorithm="HYBRID")


def test_settings_of_a_text_part(target: Path, echo: Path) -> None:
    folder, token_map = (PATH, str(echo)), "--speculative-token-map"
    for topk in ((), ("--speculative-eagle-topk", "1")):
        found = resolved(target, *folder, *topk, "--speculative-num-steps", "6", algorithm="ECHO")
        assert (found.speculative_num_draft_tokens, found.speculative_eagle_topk) == (7, 1)
        assert found.disable_overlap_schedule
    for arguments, sentence in (
        (("--speculative-eagle-topk", "2"), "--speculative-eagle-topk is 2, but with an echo drafter it must be 1"),
        (("--speculative-num-steps", "257"), "it must be a whole number from 1 to 256"),
        *(
            ((token_map, given), f"{token_map} is {given!r}, but with an echo drafter it must be left out")
            for given in ("?size=9", "map.json")
        ),
    ):
        refused(sentence, target, *folder, *arguments, algorithm="ECHO")
    for used in ("?copy=true", "?adaptive=false", "?adaptive=false&copy=true", '?step_cost={"plain":[[1,1.0]]}'):
        assert resolved(target, *folder, token_map, used, algorithm="ECHO").disable_overlap_schedule


def test_with_a_text_part_steps_do_not_overlap(echo: Path, drafter: Path) -> None:
    """On a GPU, too: it would not know the last token."""
    for folder, synchronous in ((echo, True), (drafter, False)):
        settings = SimpleNamespace(
            device="cuda",
            disable_overlap_schedule=False,
            enable_mixed_chunk=False,
            max_running_requests=None,
            speculative_adaptive=False,
            speculative_draft_model_path=str(folder),
            speculative_eagle_topk=None,
            speculative_num_draft_tokens=None,
            speculative_num_steps=None,
            speculative_token_map=None,
        )
        complete_settings(settings)
        assert settings.disable_overlap_schedule == synchronous


@pytest.mark.parametrize(("steps", "fine"), [(1, True), (2, True), (3, False)])
def test_trees_of_both_parts_begin_with_two_draft_steps_at_most(
    target: Path, tmp_path: Path, steps: int, fine: bool
) -> None:
    folder = make_gumiho(tmp_path / "gumiho", target, {"positions": 2, "blocks": 0}, steps=steps)
    arguments = (PATH, str(folder), "--speculative-eagle-topk", "3", "--speculative-num-draft-tokens", "13")
    if fine:
        served_with = resolved(target, *arguments, algorithm="GUMIHO")
        assert served_with.speculative_num_steps == steps + 2
        assert not served_with.speculative_use_rejection_sampling
        return
    refused("trees of both parts allow 2, so it must be 1", target, *arguments, algorithm="GUMIHO")


def test_drafts_of_both_parts_go_on_being_copied(target: Path, hybrid: Path) -> None:
    arguments = (PATH, str(hybrid), "--speculative-num-steps", "6", "--disable-overlap-schedule")
    found = resolved(target, *arguments, "--speculative-token-map", "?copy=true", algorithm="HYBRID")
    assert found.speculative_num_draft_tokens == 7


@pytest.mark.parametrize(("copies", "asked", "own"), [(False, 3, 3), (True, 3, 3), (True, 9, 4)])
def test_what_the_drafter_drafts_itself(
    hybrid: Path, monkeypatch: pytest.MonkeyPatch, copies: bool, asked: int, own: int
) -> None:
    spec = SimpleNamespace(
        speculative_draft_model_path=str(hybrid),
        speculative_token_map="?copy=true" if copies else None,
        speculative_num_steps=asked,
        speculative_eagle_topk=1,
        speculative_num_draft_tokens=asked + 1,
    )
    monkeypatch.setattr(served, "get_spec", lambda: spec)
    assert served.shape() == DraftShape(asked, 1, asked)
    assert served.drafter_shape() == DraftShape(own, 1, own)


def test_the_target_hands_over_the_state_that_is_read(
    target: Path, hybrid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured: list[list[int]] = []
    offering = SimpleNamespace(set_eagle3_layers_to_capture=captured.append)
    for folder, expected in ((hybrid, []), (make_between(tmp_path / "between", target), [[0]])):
        spec = SimpleNamespace(speculative_draft_model_path=str(folder))
        monkeypatch.setattr(served, "get_spec", lambda spec=spec: spec)
        served.capture_state_below(offering)
        assert captured == expected
        used = integration_points.groups_used(served.config(), "cpu", vocabularies=False, copies=False)
        assert (integration_points.STATE in used) == bool(expected)
    with pytest.raises(MTPCError, match="between the target's layers, which SGLang's SimpleNamespace does not offer"):
        served.capture_state_below(SimpleNamespace())


def test_an_own_vocabulary_is_not_restricted(target: Path, tmp_path: Path) -> None:
    folder = make_subset(tmp_path / "subset", target)
    resolved(target, PATH, str(folder), algorithm="SUBSET")
    refused("has its own", target, PATH, str(folder), "--speculative-token-map", "?size=9", algorithm="SUBSET")


def test_a_family_by_another_name(target: Path, hybrid: Path) -> None:
    refused("is a hybrid drafter: --speculative-algorithm must be HYBRID, not MTPC", target, PATH, str(hybrid))


def test_a_directory_of_no_family(target: Path, fastmtp: Path, tmp_path: Path) -> None:
    other = shutil.copytree(target, tmp_path / "other")
    refused("describes no drafter", target, PATH, str(other), algorithm="FASTMTP")
