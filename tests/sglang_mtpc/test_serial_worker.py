"""SGLang's draft worker with our parts, outside of an engine: what a step counts as and carries, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sglang.srt.speculative.eagle_worker_v2 import EagleDraftWorker
from torch import nn

from mtpc.draft_clock import DraftClock
from mtpc.errors import MTPCError
from mtpc.vocabulary.ranking import Ranking, Rankings
from mtpc.vocabulary.vocabularies import DraftVocabularies, VocabularySettings
from sglang_mtpc.models import serial
from sglang_mtpc.models.serial import SerialModel
from sglang_mtpc.serial_worker import SerialDraftWorker
from sglang_mtpc.shape import Shape

VOCABULARIES = DraftVocabularies(Rankings(6, {"low": Ranking((0, 1, 2))}), VocabularySettings(size=3))


def worker(file: Path | None, window: Any = None) -> Any:
    """One that SGLang has not made."""
    made = SerialDraftWorker.__new__(SerialDraftWorker)
    made.clock, made.window, made.shape = DraftClock(file), window, Shape(2, 1, 2)
    return made


def test_a_step_is_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EagleDraftWorker, "draft", lambda self, batch: torch.ones(200, 200) @ torch.ones(200, 200))
    monkeypatch.setattr(EagleDraftWorker, "_draft_extend_for_decode", lambda self, batch, result: None)
    one, result = worker(tmp_path / "times.json"), SimpleNamespace(
        logits_output=SimpleNamespace(hidden_states=torch.ones(3, 4)), accept_lens=torch.tensor([1])
    )  # fmt: skip
    for _ in range(3):
        one.draft(None)
        before = one.clock.seconds
        one._draft_extend_for_decode(None, result)
        assert one.clock.seconds > before
    one.clock.write()
    assert json.loads((tmp_path / "times.json").read_text())["drafts"] == 3


def test_the_targets_state_is_kept_for_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = torch.randn(2, 4)

    def extend(self: Any, batch: Any, result: Any) -> None:
        result.next_draft_input.hidden_states = layer

    monkeypatch.setattr(EagleDraftWorker, "_draft_extend_for_decode", extend)
    hidden, following = torch.randn(6, 4), SimpleNamespace(hidden_states=None)
    result = SimpleNamespace(
        logits_output=SimpleNamespace(hidden_states=hidden),
        accept_lens=torch.tensor([1, 3]),
        next_draft_input=following,
    )
    worker(None, window="some")._draft_extend_for_decode(None, result)
    assert torch.equal(following.hidden_states.view(2, 2, 4), torch.stack([hidden[[0, 5]], layer], 1))


@pytest.mark.parametrize("probs", [None, torch.tensor([[0.1, 0.9], [0.9, 0.1]])], ids=["tree", "chain"])
def test_greedy_requests_draft_greedily_after_their_prompt(
    probs: torch.Tensor | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = torch.tensor([[0], [1]])
    first = SimpleNamespace(draft_probs=probs, topk_index=drawn, topk_p=None, hidden_states=torch.zeros(2, 4))
    monkeypatch.setattr(EagleDraftWorker, "_draft_extend_for_prefill", lambda self, batch, *args: first)
    batch = SimpleNamespace(extend_lens=[2, 3], sampling_info=SimpleNamespace(top_ks=torch.tensor([1, 50])))
    made = worker(None)._draft_extend_for_prefill(batch, torch.zeros(5, 4), None)
    assert made.topk_index.tolist() == ([[1], [1]] if probs is not None else drawn.tolist())


class Head(nn.Module):
    """An output head with such a weight."""

    def __init__(self, weight: torch.Tensor | None) -> None:
        super().__init__()
        self.weight = weight


def model() -> Any:
    """A model without layers."""
    made = SerialModel.__new__(SerialModel)
    nn.Module.__init__(made)
    made.model = nn.Module()
    made.family, made.drafter = SimpleNamespace(algorithm="X"), SimpleNamespace(hidden_size=4, vocab_size=6)
    return made


def target(weight: torch.Tensor | None) -> Any:
    """A target with this head."""
    return SimpleNamespace(model=SimpleNamespace(embed_tokens=nn.Embedding(6, 4)), lm_head=Head(weight))


@pytest.mark.parametrize(
    "weight",
    [
        None,
        torch.zeros(6, 4, dtype=torch.int8),
        torch.zeros(6, 1, dtype=torch.int32),
        torch.zeros(6, 4, dtype=torch.float8_e4m3fn),
    ],
    ids=["none", "int8", "packed", "fp8"],
)
def test_rows_of_a_quantised_head_are_refused(weight: torch.Tensor | None) -> None:
    with pytest.raises(MTPCError, match=r"an output head that is not quantised; set its language to 'none'\.$"):
        model().share(target(weight), VOCABULARIES, None)
    model().share(target(weight), None, None)  # SGLang computes with it


def test_rows_are_of_the_whole_head(monkeypatch: pytest.MonkeyPatch) -> None:
    shards = torch.randn(8, 4)  # of two ranks, with rows that fill up
    group = SimpleNamespace(all_gather=lambda own, dim: shards)
    monkeypatch.setattr(serial, "get_parallel", lambda: SimpleNamespace(tp_group=group))
    one = model()
    one.share(target(shards[:4]), VOCABULARIES, None)
    assert torch.equal(one.draft_logits.rows[0], shards[VOCABULARIES.ids[0]])
