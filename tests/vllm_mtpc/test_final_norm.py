"""Which targets' states go through their final norm before a drafter reads them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from vllm.model_executor.models import llama, mimo, qwen2, step3p5

from vllm_mtpc.final_norm import final_norm

SIZE = 4
STATES = torch.randn(3, SIZE)


class Target(nn.Module):
    """As much of a model of vLLM as its logits are made of.

    compute_logits: of a class of vLLM's, or a test's own.
    """

    def __init__(self, compute_logits: Any) -> None:
        super().__init__()
        self.model, self.lm_head = nn.Module(), nn.Linear(SIZE, 6)
        self.model.norm = nn.LayerNorm(SIZE, dtype=torch.float64 if compute_logits is widened else None)
        self.compute_logits = compute_logits.__get__(self)

    def logits_processor(self, head: nn.Module, states: Tensor) -> Tensor:
        """VLLM's."""
        logits: Tensor = head(states)
        return logits


def widened(self: Any, states: Tensor) -> Tensor:
    """Of another type."""
    return self.model.norm(states.double()).float()  # type: ignore[no-any-return]


class Wrapper(nn.Module):
    """A model of language and more."""

    def __init__(self, target: Target) -> None:
        super().__init__()
        self.language_model = target

    def compute_logits(self, states: Tensor) -> Tensor:
        """The language model's."""
        logits: Tensor = self.language_model.compute_logits(states)
        return logits


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(
    "compute_logits", [mimo.MiMoForCausalLM.compute_logits, step3p5.Step3p5ForCausalLM.compute_logits, widened]
)
def test_states_before_the_norm_go_through_it(compute_logits: Any, wrapped: bool) -> None:
    target = Target(compute_logits)
    found = final_norm(Wrapper(target) if wrapped else target, torch.zeros(1, SIZE))(STATES)
    expected = target.model.norm(STATES.to(target.model.norm.weight.dtype))
    torch.testing.assert_close(found, expected, check_dtype=False)


class LogitsProcessorWithLoRA(nn.Module):
    """Computes logits of a batch only, of which there is none."""

    def forward(self, head: nn.Module, states: Tensor) -> Tensor:
        """Fail."""
        raise IndexError


@pytest.mark.parametrize(("kind", "normed"), [(mimo.MiMoForCausalLM, True), (llama.LlamaForCausalLM, False)])
def test_a_target_with_adapters_computes_no_logits(kind: Any, normed: bool) -> None:
    target: Any = Target(kind.compute_logits)
    target.logits_processor = LogitsProcessorWithLoRA()
    found = final_norm(target, torch.zeros(1, SIZE))(STATES)
    torch.testing.assert_close(found, target.model.norm(STATES) if normed else STATES)


@pytest.mark.parametrize("kind", [llama.LlamaForCausalLM, qwen2.Qwen2ForCausalLM])
def test_others_stay_as_they_are(kind: Any) -> None:
    assert final_norm(Target(kind.compute_logits), torch.zeros(1, SIZE))(STATES) is STATES
