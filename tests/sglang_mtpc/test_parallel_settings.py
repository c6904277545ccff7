"""Every wrong directory or setting is one sentence, before any engine process exists."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from sglang.srt.arg_groups.overrides import model_config_of, resolving_view
from sglang.srt.server_args import prepare_server_args
from sglang.srt.speculative.adaptive_spec_params import AdaptiveSpeculativeParams

from mtpc.errors import MTPCError
from mtpc.lab.bench.configuration import MeasuredServer, configuration, write
from mtpc.methods import method_of
from sglang_mtpc import shape
from sglang_mtpc.settings import check_settings
from sglang_mtpc.shape import draft_shape
from sglang_mtpc.token_map import copies, read
from tests.sglang_mtpc.resolving import refused, resolved, server_args_of
from tests.support.broken_drafters import BROKEN, Broken, broken_copy
from tests.support.broken_settings import SGLANG_SETTINGS, TREE
from tests.support.hub_cache import COMMIT, cached, go_offline
from tests.support.random_models import make_copying

pytestmark = pytest.mark.usefixtures("loaded")
FOLDERS = [case for case in BROKEN if case.folder is not None]


@pytest.fixture(autouse=True)
def kept_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exceptions are shown as they were."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)


@pytest.mark.parametrize("case", FOLDERS, ids=[case.name for case in FOLDERS])
def test_directories(case: Broken, target: Path, drafter: Path, tmp_path: Path) -> None:
    folder = tmp_path / "drafter"
    broken_copy(case, drafter, folder)
    refused(case.sentence, target, "--speculative-draft-model-path", str(folder))


@pytest.mark.parametrize("name", SGLANG_SETTINGS)
def test_settings(name: str, target: Path, drafter: Path) -> None:
    arguments, sentence = SGLANG_SETTINGS[name]
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


CHANGED = ("--max-running-requests", "--enable-mixed-chunk", "overlap schedule")


def test_settings_that_are_changed_are_logged(target: Path, drafter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[str] = []  # SGLang removes other handlers of log lines
    monkeypatch.setattr(shape.logger, "warning", lambda line, *values: logged.append(line % values))
    folder, whole = ("--speculative-draft-model-path", str(drafter)), ("--speculative-token-map", "?adaptive=false")
    kept = (*folder, "--max-running-requests", "5")
    for arguments, expected in (
        ((*kept, "--disable-overlap-schedule"), ()),
        ((*kept, *whole), ()),
        (kept, CHANGED[2:]),
        ((*folder, *whole, "--enable-mixed-chunk", "--chunked-prefill-size", "64"), CHANGED[:2]),
    ):
        logged.clear()
        assert not resolved(target, *arguments).enable_mixed_chunk
        assert {part for part in CHANGED for line in logged if part in line} == {*expected}
        assert len(logged) == len(expected)


def test_adapters_of_the_target_are_refused_by_sglang(target: Path, drafter: Path) -> None:
    adapters = ("--enable-lora", "--max-lora-rank", "8", "--lora-target-modules", "q_proj")
    given = server_args_of(target, "--speculative-draft-model-path", str(drafter), *adapters, algorithm="MTPC")
    with pytest.raises(ValueError, match=r"LoRA is only compatible with .*, not MTPC\."):
        given.check_server_args()


def test_a_hugging_face_id(target: Path, drafter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_offline(monkeypatch, tmp_path)
    named = ("--speculative-draft-model-path", "owner/window")
    tag = ("--speculative-draft-model-revision", "v1")
    tagged = cached(tmp_path, "owner/window", drafter, COMMIT[::-1], ref="v1")
    refused("its main branch is not complete in the cache", target, *named)
    assert resolved(target, *named, *tag).speculative_draft_model_path == str(tagged)
    snapshot = cached(tmp_path, "owner/other", drafter)
    found = resolved(target, "--speculative-draft-model-path", "owner/other")
    assert (found.speculative_draft_model_path, found.speculative_num_steps) == (str(snapshot), 7)


@pytest.mark.parametrize("copying", [None, {"mtpc": {"copy": True, "step_cost": {"drafting": [[1, 0.1]]}}}])
def test_a_configuration_of_mtpc_plan(copying: Any, target: Path, drafter: Path, tmp_path: Path) -> None:
    file, served = tmp_path / "own.yaml", MeasuredServer("sglang", str(target), str(drafter))
    write(file, served.engine, configuration(served, [[1, 4, 5], [5, 20, 0]], copying))
    given = prepare_server_args(["--config", str(file), "--device", "cpu"])
    given.resolve_once()
    found = resolving_view(given)
    drafts = 5 if copying is None else 10  # at most: of copied drafts as many as pay
    assert (found.speculative_algorithm, found.speculative_num_draft_tokens) == ("MTPC", drafts + 1)
    assert found.max_running_requests == 20
    assert copies(found.speculative_token_map) is (copying is not None)
    assert (read(found.speculative_token_map).step_cost is None) == (copying is None)
    write(file, served.engine, configuration(served, [[1, 20, 0]], None))
    assert prepare_server_args(["--config", str(file)]).speculative_algorithm is None


def test_a_configuration_of_mtpc_plan_for_a_gpu(
    target: Path, drafter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    file, served = tmp_path / "own.yaml", MeasuredServer("sglang", str(target), str(drafter))
    write(file, served.engine, configuration(served, [[1, 4, 3], [5, 8, 5], [9, 20, 0]], None))
    monkeypatch.undo()
    given = prepare_server_args(["--config", str(file), "--device", "cpu"])
    given.resolve_once()
    found = resolving_view(given)
    assert found.speculative_adaptive
    assert found.speculative_num_draft_tokens == 6
    chosen = AdaptiveSpeculativeParams(5, found.speculative_adaptive_config)
    assert [chosen.get_steps_for_batch(requests) for requests in (1, 4, 5, 8, 9, 20)] == [3, 3, 5, 5, 0, 0]


def test_a_tree(target: Path, drafter: Path) -> None:
    arguments = ("--speculative-draft-model-path", str(drafter), *TREE, "--max-running-requests", "5")
    found = resolved(target, *arguments)
    assert found.speculative_num_steps == 7
    assert found.speculative_eagle_topk == 3
    assert found.speculative_num_draft_tokens == 12
    assert not found.speculative_use_rejection_sampling
    assert found.max_running_requests == 5
    resolved(target, *arguments, "--speculative-token-map", "?borrow=4")


def test_a_tree_is_no_deeper_than_it_has_nodes(target: Path, drafter: Path) -> None:
    arguments = ("--speculative-eagle-topk", "3", "--speculative-num-draft-tokens", "4")
    assert resolved(target, "--speculative-draft-model-path", str(drafter), *arguments).speculative_num_steps == 3


def test_longer_copies_are_for_sglangs_own_drafters(target: Path, drafter: Path) -> None:
    words = ("--speculative-token-map", "?copy=true&copy_tokens=15")
    refused("set --speculative-num-steps instead", target, "--speculative-draft-model-path", str(drafter), *words)


def test_settings_without_an_mtpc_drafter_are_none_of_our_business(target: Path, tmp_path: Path) -> None:
    found = resolved(target, "--speculative-num-draft-tokens", "6", algorithm="NGRAM")
    assert found.speculative_num_draft_tokens == 6
    other = shutil.copytree(target, tmp_path / "other")
    arguments = ("--speculative-draft-model-path", str(other), "--speculative-num-steps", "9")
    assert resolved(target, *arguments, "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "10",
                    algorithm="STANDALONE").speculative_num_steps == 9  # fmt: skip


class OnAGPU:
    """Resolved settings, with other ones in their place."""

    def __init__(self, settings: Any, **others: Any) -> None:
        self.settings, self.others = settings, {"device": "cuda"} | others

    def __getattr__(self, name: str) -> Any:
        return self.others[name] if name in self.others else getattr(self.settings, name)


def test_attention_that_does_not_verify_trees(target: Path, drafter: Path) -> None:
    def check(*more: str, **others: str) -> None:
        arguments = ("--model-path", str(target), "--device", "cpu", "--speculative-algorithm", "MTPC", *more)
        given = prepare_server_args([*arguments, "--speculative-draft-model-path", str(drafter)])
        check_settings(OnAGPU(resolving_view(given), **others), given, lambda: model_config_of(given))

    check(*TREE, attention_backend="fa3")
    check(attention_backend="trtllm_mha")  # a chain
    for others in (
        {"attention_backend": "trtllm_mha"},
        {"attention_backend": "fa3", "decode_attention_backend": "fa4"},
    ):
        with pytest.raises(MTPCError, match="must be one of flashinfer, fa3, triton"):
            check(*TREE, **others)


@pytest.mark.parametrize(
    ("device", "tokens", "fine"), [("cpu", 1025, True), ("cuda", 1024, True), ("cuda", 1025, False)]
)
def test_trees_that_kernels_on_gpus_do_not_verify(
    target: Path, drafter: Path, device: str, tokens: int, fine: bool
) -> None:
    arguments = ("--speculative-draft-model-path", str(drafter), "--speculative-eagle-topk", "8")
    settings = resolved(target, *arguments, "--speculative-num-draft-tokens", "12")
    sized, config = (
        OnAGPU(settings, device=device, speculative_num_draft_tokens=tokens),
        method_of(drafter).read_config(drafter),
    )
    if fine:
        assert draft_shape(sized, config).nodes == tokens - 1
        return
    with pytest.raises(MTPCError, match=r"^--speculative-num-draft-tokens is 1025, but .* at most 1024"):
        draft_shape(sized, config)


COPY = ("--speculative-token-map", "?copy=true")


def test_copying(target: Path, drafter: Path, tmp_path: Path) -> None:
    folder = ("--speculative-draft-model-path", str(drafter))
    synchronous = (*folder, *COPY, "--disable-overlap-schedule")
    assert resolved(target, *synchronous).speculative_token_map == "?copy=true"
    assert resolved(target, *synchronous, "--speculative-num-steps", "12").speculative_num_draft_tokens == 13
    refused("whole number from 1 to 256", target, *synchronous, "--speculative-num-steps", "0")
    whole = f"{COPY[1]}&adaptive=false"
    refused("requires --disable-overlap-schedule", target, *folder, COPY[0], whole)
    refused("but with prompt lookup it must be 1", target, *synchronous, *TREE)
    refused("--speculative-token-map is 'a.json?copy=true'", target, *synchronous, COPY[0], "a.json?copy=true")
    shutil.copytree(drafter, tmp_path / "drafter")
    (tmp_path / "drafter" / "copying.json").write_text('{"chances": []}')
    wrong = ("--speculative-draft-model-path", str(tmp_path / "drafter"), *synchronous[2:])
    refused("copying.json", target, *wrong)


def test_a_drafter_that_only_copies(target: Path, tmp_path: Path) -> None:
    folder = ("--speculative-draft-model-path", str(make_copying(tmp_path / "copying", target)))
    alone = (*folder, "--disable-overlap-schedule")
    assert resolved(target, *alone, algorithm="COPYING").speculative_num_draft_tokens == 11
    whole = (COPY[0], "?adaptive=false")
    refused("requires --disable-overlap-schedule", target, *folder, *whole, algorithm="COPYING")
    refused("this drafter does nothing else", target, *alone, COPY[0], "?copy=false", algorithm="COPYING")
    refused("but with prompt lookup it must be 1", target, *alone, *TREE, algorithm="COPYING")
    refused("from 1 to 256", target, *alone, "--speculative-num-steps", "300", algorithm="COPYING")
