"""What a drafter holds after vLLM has slept at level 2: all that it drafts from, at the same addresses."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mtpc.target_head.draft_logits import DraftLogits
from mtpc.target_head.union import UnionLogits
from mtpc.vocabulary.ranking import Ranking, Rankings
from mtpc.vocabulary.vocabularies import DraftVocabularies, VocabularySettings
from vllm_mtpc.sleep_mode import keep_while_asleep
from vllm_mtpc.v2.languages import DeviceLanguages

SIZE, VOCABULARY = 4, 8
RANKINGS = Rankings(VOCABULARY, {"low": Ranking((0, 1, 2)), "high": Ranking((5, 4, 3))})


def sleep(model: nn.Module, *lost: Tensor) -> None:
    """Sleep and wake up as vLLM's worker does; all tensors that are not buffers are lost."""
    saved = {name: buffer.cpu().clone() for name, buffer in model.named_buffers()}
    for tensor in (*model.buffers(), *lost):
        tensor.zero_()
    for name, buffer in model.named_buffers():
        buffer.data.copy_(saved[name].data)


@pytest.mark.parametrize("kind", [DraftLogits, UnionLogits])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])  # the second one has an int8 copy on a CPU
def test_draft_vocabularies(kind: Callable[..., DraftLogits], dtype: torch.dtype) -> None:
    model, size = nn.Module(), 64
    model.lm_head = nn.Linear(size, VOCABULARY, bias=False, dtype=dtype)
    vocabularies = DraftVocabularies(RANKINGS, VocabularySettings(size=3))
    logits = kind(vocabularies, model.lm_head.weight.data)
    keep_while_asleep(model, logits)
    states = torch.randn(2, size).to(dtype)
    before = logits(states)
    assert not {"lm_head.weight"} & {name for name, _ in model.named_buffers()}
    assert not any("kept" in name for name in model.state_dict())
    sleep(model, *(rows.share for rows in logits.rows if not model.buffers()))
    assert torch.equal(logits(states), before)


def test_languages() -> None:
    vocabularies = DraftVocabularies(RANKINGS, VocabularySettings(size=3))
    speculator = SimpleNamespace(max_num_reqs=2, num_speculative_steps=3, device=torch.device("cpu"), unrelated=[])
    states = SimpleNamespace(add_request=lambda *_: None)
    languages = DeviceLanguages(vocabularies, speculator, states, counts_metrics=True)
    model: Any = nn.Module()
    keep_while_asleep(model, languages.kept)
    slots = languages.slots
    held = {name: value.clone() for name, value in vars(slots).items() if isinstance(value, Tensor)}
    assert {"costs", "text", "offsets", "union", "evidence", "numbers"} <= set(held)
    sleep(model)
    for name, value in held.items():
        assert torch.equal(getattr(slots, name), value), name
    assert slots.tally is not None
    kept = {buffer.data_ptr() for buffer in model.buffers()}
    assert {slots.tally.drafts.data_ptr(), languages.num_rejected.data_ptr()} <= kept


def test_what_vllm_knows_is_not_saved_twice() -> None:
    """Views of parameters come with them; cycles and foreign objects end nowhere."""
    model = nn.Linear(2, 2)
    foreign, cycle = SimpleNamespace(tensor=torch.ones(1)), []
    cycle.append(cycle)
    keep_while_asleep(model, model.weight.data[1:], foreign, cycle, None)
    assert not list(model.buffers())
