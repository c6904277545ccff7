"""Medusa's heads: fewer of them, and for one request on a CPU. Their drafts: see methods/test_contract.py."""

from __future__ import annotations

import pytest
import torch

from mtpc.draft import DraftContext
from mtpc.parallel.compiled import drafting_for_one
from mtpc.parallel.config import MedusaHeadsConfig
from mtpc.parallel.medusa_part import MedusaPart
from mtpc.target_head.int8 import Int8Linear

SIZE, VOCAB, HEADS = 32, 64, 4  # of sizes that fit int8


def make(shared: bool) -> MedusaPart:
    torch.manual_seed(1)
    config = MedusaHeadsConfig(heads=HEADS, layers=2, shared_output=shared, hidden_size=SIZE, vocab_size=VOCAB)
    part = MedusaPart(config)
    for parameter in part.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return part


def context(rows: int) -> DraftContext:
    generator = torch.Generator().manual_seed(2)
    states = torch.randn(rows, SIZE, generator=generator)
    return DraftContext.of_target(states, torch.randint(VOCAB, (rows,), generator=generator))


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_fewer_heads_draft_the_same_from_the_same_memory(shared: bool, learns: bool) -> None:
    part = make(shared).bfloat16().requires_grad_(learns).train(learns)
    short, known = part.shortened(2), context(5)._replace(states=context(5).states.bfloat16())
    with torch.inference_mode():
        whole, some = part.logits(known)[0], short.logits(known)[0]
    assert short.max_drafts == 2
    torch.testing.assert_close(some, whole[:, :2])
    assert short.state_dict().keys() == {name for name in part.state_dict() if int(name.split(".")[1]) < 2}
    for name, tensor in short.state_dict().items():
        assert tensor.data_ptr() == part.state_dict()[name].data_ptr()
    assert {weight.requires_grad for weight in short.parameters()} == {short.training} == {learns}
    assert part.shortened(HEADS) is part


@pytest.mark.parametrize("shared", [False, True])
@torch.inference_mode()
def test_with_int8_weights_it_states_nearly_the_same(shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    part = make(shared).bfloat16()
    monkeypatch.setattr("mtpc.parallel.compiled.has_compiler", lambda: False)
    single, known = drafting_for_one(part), context(1)._replace(states=context(1).states.bfloat16())
    rounded = single.__self__  # type: ignore[attr-defined]
    assert all(isinstance(output, Int8Linear) for output in rounded.outputs)
    noise = torch.zeros(1, HEADS, dtype=torch.float64)
    exact, near = (draft(known, torch.ones(1), noise, HEADS, "sampled").probs for draft in (part.draft, single))
    assert exact is not None and near is not None
    assert 0 < (exact - near).abs().sum(-1).max() / 2 < 0.03
