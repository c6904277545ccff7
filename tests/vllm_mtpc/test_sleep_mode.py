"""What a drafter holds after vLLM has slept at level 2: all that it drafts from, at the same addresses."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from mtpc.errors import MTPCError
from mtpc.target_head.draft_logits import DraftLogits
from mtpc.target_head.union import UnionLogits
from mtpc.vocabulary.ranking import Ranking, Rankings
from mtpc.vocabulary.vocabularies import DraftVocabularies, VocabularySettings
from vllm_mtpc.sleep_mode import check_languages, keep_while_asleep

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


def test_languages_do_not_sleep() -> None:
    config = SimpleNamespace(model_config=SimpleNamespace(enable_sleep_mode=False))
    check_languages(config)
    config.model_config.enable_sleep_mode = True
    with pytest.raises(MTPCError, match=r"does not fit draft vocabularies by language .* in 'mtpc' of"):
        check_languages(config)


def test_what_vllm_knows_is_not_saved_twice() -> None:
    """Views of parameters come with them; cycles and foreign objects end nowhere."""
    model = nn.Linear(2, 2)
    foreign, cycle = SimpleNamespace(tensor=torch.ones(1)), []
    cycle.append(cycle)
    keep_while_asleep(model, model.weight.data[1:], foreign, cycle, None)
    assert not list(model.buffers())
