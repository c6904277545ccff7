"""The head of a draft model of vLLM's own, restricted: what its logits processor does with logits, it still does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

from mtpc.errors import MTPCError
from mtpc.target_head.rows import SINGLE_RANK
from mtpc.vocabulary.ranking import Ranking, Rankings
from mtpc.vocabulary.vocabularies import DraftVocabularies, VocabularySettings
from vllm_mtpc.native import head as native_head
from vllm_mtpc.native.head import NativeHead

RANKINGS = Rankings(6, {"low": Ranking((0, 1, 2)), "high": Ranking((3, 4, 5))})
IDS = [(0, 1, 2), (3, 4, 5), (0, 1, 2, 3, 4, 5)]
VOCABULARIES = DraftVocabularies(RANKINGS, VocabularySettings(size=3))
STATES = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))


class Model(nn.Module):
    """What all of vLLM's draft models have."""

    def __init__(self, vocab_size: int = 6, **processing: Any) -> None:
        super().__init__()
        with set_current_vllm_config(VllmConfig()):
            self.lm_head = ParallelLMHead(vocab_size, 4, params_dtype=torch.float32)
            self.logits_processor = LogitsProcessor(vocab_size, **processing)
        self.logits_processor.head_dtype = torch.float32
        generator = torch.Generator().manual_seed(0)
        self.lm_head.weight.data[:vocab_size] = torch.randn(vocab_size, 4, generator=generator)
        self.lm_head.quant_method.process_weights_after_loading(self.lm_head)

    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        """As vLLM's do it."""
        logits: Tensor = self.logits_processor(self.lm_head, hidden_states)
        return logits


@pytest.fixture(autouse=True)
def one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """No group of processes is needed for one."""
    places = "vllm.model_executor.layers.vocab_parallel_embedding.get_tensor_model_parallel_"
    monkeypatch.setattr(places + "rank", lambda: 0)
    monkeypatch.setattr(places + "world_size", lambda: 1)
    monkeypatch.setattr(native_head, "head_ranks", lambda: SINGLE_RANK)


@pytest.mark.parametrize("processing", [{}, {"scale": 0.5}, {"soft_cap": 1.5}, {"scale": 2.0, "soft_cap": 0.7}])
def test_each_rows_own_vocabulary(processing: dict[str, float]) -> None:
    model = Model(**processing)
    whole = model.compute_logits(STATES)
    head = NativeHead(model, VOCABULARIES, 6, static=False)
    for numbers in (None, torch.tensor([1, 2, 0])):
        head.numbers = numbers
        logits = model.compute_logits(STATES)
        for row, number in enumerate([0, 0, 0] if numbers is None else numbers.tolist()):
            assert logits[row].isfinite().nonzero()[:, 0].tolist() == list(IDS[number])
            torch.testing.assert_close(logits[row, IDS[number]], whole[row, IDS[number]])


@pytest.mark.parametrize("wrong", ["another size", "unreadable", "another head", "a bias", "no head"])
def test_heads_that_are_refused(wrong: str) -> None:
    model = Model(vocab_size=5 if wrong == "another size" else 6)
    if wrong == "unreadable":
        model.lm_head.weight, model.lm_head.quant_method = None, None
    elif wrong == "another head":
        model.shared_head = Model()
    elif wrong == "a bias":
        model.lm_head.bias = nn.Parameter(torch.zeros(6))
    elif wrong == "no head":
        del model.lm_head
    with pytest.raises(MTPCError, match="needs one output head over the target's 6 tokens"):
        NativeHead(model, VOCABULARIES, 6, static=False)
