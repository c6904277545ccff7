"""Which targets' states go through their final norm before a drafter reads them."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn
from vllm.model_executor.models import llama, mimo, qwen2, step3p5

from vllm_mtpc.final_norm import NORM_WITH_LOGITS, final_norm


class Target(nn.Module):
    """As much of a model of vLLM as is looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Module()
        self.model.norm = nn.LayerNorm(4)


class MiMoForCausalLM(Target):
    """Named as vLLM's."""


class Derived(MiMoForCausalLM):
    """Of a kind that builds upon it."""


@pytest.mark.parametrize("kind", [MiMoForCausalLM, Derived])
def test_states_before_the_norm_go_through_it(kind: type[Target]) -> None:
    target, states = kind(), torch.randn(3, 4)
    assert torch.equal(final_norm(target)(states), target.model.norm(states))


def test_others_stay_as_they_are() -> None:
    states = torch.randn(3, 4)
    assert final_norm(Target())(states) is states


@pytest.mark.parametrize("module", [llama, mimo, qwen2, step3p5])
def test_the_names_are_those_of_models_whose_logits_bring_the_norm(module: object) -> None:
    for name, kind in inspect.getmembers(module, inspect.isclass):
        if name.endswith("ForCausalLM") and "compute_logits" in vars(kind):
            assert ("model.norm(" in inspect.getsource(kind.compute_logits)) is (name in NORM_WITH_LOGITS)
