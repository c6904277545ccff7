"""Every wrong directory or setting is one sentence, before any engine process exists."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from sglang.srt.arg_groups.overrides import resolving_view
from sglang.srt.server_args import prepare_server_args

from mtpc.errors import MTPCError
from tests.support.broken_drafters import BROKEN, Broken, broken_copy

pytestmark = pytest.mark.usefixtures("loaded")
FOLDERS = [case for case in BROKEN if case.folder is not None]
TREE = ("--speculative-eagle-topk", "3", "--speculative-num-draft-tokens", "12")
SETTINGS = {
    "too many drafts": (("--speculative-num-steps", "8"), "a window of 8 tokens"),
    "no drafts": (("--speculative-num-steps", "0"), "from 1 to 7"),
    "too many tokens": (("--speculative-num-draft-tokens", "9"), "--speculative-num-steps is 8"),
    "not a chain": (("--speculative-num-steps", "5", "--speculative-num-draft-tokens", "8"), "verified as 6 tokens"),
    "no children": (("--speculative-eagle-topk", "0"), "at least 1"),
    "a tree of unknown size": (("--speculative-eagle-topk", "2"), "--speculative-num-draft-tokens is None"),
    "a tree of one node": ((*TREE, "--speculative-num-draft-tokens", "1"), "at least 2"),
    "a tree that does not fit": ((*TREE, "--speculative-num-steps", "1"), "a draft tree of 11 nodes does not fit"),
    "a tree with distributions": ((*TREE, "--speculative-use-rejection-sampling"), "is for chains"),
    "an acceptance threshold": (("--speculative-accept-threshold-acc", "0.5"), "--speculative-accept-threshold-acc is"),
    "adaptive": (("--speculative-adaptive",), "--speculative-adaptive is True"),
    "a token map": (("--speculative-token-map", "map.pt"), "--speculative-token-map is 'map.pt'"),
    "block verification": (("--speculative-use-block-verification",), "must be False"),
    "pipeline parallelism": (("--pp-size", "2"), "--pp-size is 2"),
    "hidden states": (("--enable-return-hidden-states",), "--enable-return-hidden-states is True"),
    "a revision": (("--speculative-draft-model-revision", "v2"), "--speculative-draft-model-revision is 'v2'"),
}


@pytest.fixture(autouse=True)
def kept_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exceptions are shown as they were."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)


def resolved(target: Path, *arguments: str, algorithm: str = "MTPC") -> Any:
    """What every way of starting SGLang does first."""
    fixed = ("--model-path", str(target), "--device", "cpu", "--speculative-algorithm", algorithm)
    server_args = prepare_server_args([*fixed, *arguments])
    server_args.resolve_once()
    return resolving_view(server_args)


def refused(part: str, target: Path, *arguments: str, **options: str) -> None:
    """Resolving ends in one sentence with this part."""
    with pytest.raises(MTPCError) as caught:
        resolved(target, *arguments, **options)
    message = str(caught.value)
    assert part in message
    assert "\n" not in message
    assert message.endswith(".")
    assert len(message) < 600


@pytest.mark.parametrize("case", FOLDERS, ids=[case.name for case in FOLDERS])
def test_directories(case: Broken, target: Path, drafter: Path, tmp_path: Path) -> None:
    folder = tmp_path / "drafter"
    broken_copy(case, drafter, folder)
    refused(case.sentence, target, "--speculative-draft-model-path", str(folder))


@pytest.mark.parametrize("name", SETTINGS)
def test_settings(name: str, target: Path, drafter: Path) -> None:
    arguments, sentence = SETTINGS[name]
    refused(sentence, target, "--speculative-draft-model-path", str(drafter), *arguments)


def test_no_directory(target: Path) -> None:
    refused("needs --speculative-draft-model-path", target)


def test_another_algorithm(target: Path, drafter: Path) -> None:
    refused("must be MTPC, not EAGLE", target, "--speculative-draft-model-path", str(drafter), algorithm="EAGLE")


def test_what_is_left_open_is_completed(target: Path, drafter: Path) -> None:
    found = resolved(target, "--speculative-draft-model-path", str(drafter), algorithm="mtpc")
    assert found.speculative_algorithm == "MTPC"
    assert found.speculative_num_steps == 7
    assert found.speculative_eagle_topk == 1
    assert found.speculative_num_draft_tokens == 8
    assert found.speculative_use_rejection_sampling
    assert found.max_running_requests == 48
    shorter = resolved(target, "--speculative-draft-model-path", str(drafter), "--speculative-num-draft-tokens", "4")
    assert shorter.speculative_num_steps == 3


def test_a_tree(target: Path, drafter: Path) -> None:
    arguments = ("--speculative-draft-model-path", str(drafter), *TREE, "--max-running-requests", "5")
    found = resolved(target, *arguments)
    assert found.speculative_num_steps == 7
    assert found.speculative_eagle_topk == 3
    assert found.speculative_num_draft_tokens == 12
    assert not found.speculative_use_rejection_sampling
    assert found.max_running_requests == 5


def test_settings_without_an_mtpc_drafter_are_none_of_our_business(target: Path, tmp_path: Path) -> None:
    found = resolved(target, "--speculative-num-draft-tokens", "6", algorithm="NGRAM")
    assert found.speculative_num_draft_tokens == 6
    other = shutil.copytree(target, tmp_path / "other")
    arguments = ("--speculative-draft-model-path", str(other), "--speculative-num-steps", "9")
    assert resolved(target, *arguments, "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "10",
                    algorithm="STANDALONE").speculative_num_steps == 9  # fmt: skip
