"""The losses through the target's head against a reference implementation, and their gradients against autograd."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from mtpc.autoregressive.adapted_layers import AdaptedLayers
from mtpc.draft import DraftContext
from mtpc.lab.training import mixture_loss
from mtpc.lab.training.conversation_recipe import MicroBatch
from mtpc.lab.training.recipes.conversation_circuit_loss import WindowBatch, circuit_losses, part_of
from mtpc.lab.training.recipes.conversation_circuit_recipe import initialize
from mtpc.lab.training.sampled_head import SampledHead
from mtpc.methods.drafter import Drafter
from mtpc.methods.mtpc import MTPC, MTPCConfig
from mtpc.parallel.circuit_head import to_circuit_params
from mtpc.parallel.circuit_part import CircuitPart
from mtpc.parallel.head_inputs import with_head_inputs
from mtpc.target_head.shared import SharedHead
from tests.oracles import circuit_ops
from tests.support.tiny_methods import mtpc_lora, tiny_target

DRAFTS, LENGTH = 4, 14
SIZES = {"leaf_features": 5, "component_features": 4, "sum_features": 3, "trunk_size": 6}
KINDS: dict[str, dict[str, Any]] = {
    "ff": {"circuit": "ff", "window": 4, "leaves": "target", "token_input": True},
    "cp": {"circuit": "cp", "window": 5, "leaves": "target", "token_input": True},
    "hmm": {"circuit": "hmm", "window": 5, "leaves": "target"},
    "btree": {"circuit": "btree", "window": 5, "leaves": "target", "token_input": True},
    "own unembedding": {"circuit": "hmm", "window": 4, "leaves": "shared", "token_input": True},
    "markov": {"circuit": "ff", "window": 5, "leaves": "target", "token_input": True, "markov_rank": 3},
}


def drafter_of(kind: str) -> Drafter:
    """A drafter whose weights are all at random."""
    config, values = tiny_target().config, KINDS[kind]
    sizes = {"hidden_size": config.hidden_size, "vocab_size": config.vocab_size, **SIZES}
    torch.manual_seed(3)
    drafter = Drafter(MTPC(), MTPCConfig(rank=1 if values["circuit"] == "ff" else 3, **values, **sizes))
    initialize(part_of(drafter), SharedHead.of(tiny_target()).rows)
    for weight in drafter.parameters():
        weight.data += 0.2 * torch.randn(weight.shape)
    return drafter


def texts(sampled: bool) -> MicroBatch:
    """Two texts with some starts each."""
    target, generator = tiny_target(), torch.Generator().manual_seed(5)
    tokens = torch.randint(target.config.vocab_size, (2, LENGTH), generator=generator)
    chosen = torch.rand(2, LENGTH - DRAFTS - 1, generator=generator) < 0.6
    head: SharedHead = SharedHead.of(target)
    if sampled:
        ids = torch.cat([tokens.flatten(), torch.arange(0, head.vocab_size, 3)]).unique()
        head = SampledHead(head, ids, torch.rand(len(ids), generator=generator))
    return MicroBatch(target.model(input_ids=tokens).last_hidden_state, tokens, chosen, head)


def plain(drafter: Drafter, batch: MicroBatch, loss: str) -> Tensor:
    """Each start and position for itself, from what the drafter would state: [n]."""
    part, (hidden, tokens, chosen, head, *_) = part_of(drafter), batch
    window, first = part.config.window, part.config.window - part.config.circuit_window
    totals = torch.zeros(part.config.circuit_window)
    for row, start in chosen.nonzero().tolist():
        context = with_head_inputs(
            DraftContext(hidden[row, start][None, None], tokens[row, start + 1][None, None]), None, head
        )
        text = tokens[row, start + 1 : start + 1 + window]
        log_q = _conditionals(part, context, text[first:], head)  # [n, rows]
        for position in range(first, window):
            own = log_q[position - first]
            if loss == "nll":
                totals[position - first] -= own[head.rows_of(text[position])]
            else:
                log_p = head.logits(hidden[row, start + position]).log_softmax(-1)
                totals[position - first] += (log_p.exp() * (log_p - own)).sum()
    return totals


def _conditionals(part: Any, context: DraftContext, text: Tensor, head: SharedHead) -> Tensor:
    if not isinstance(part, CircuitPart):
        logits = part._logits_along(context, text[None])[0]
        return logits.log_softmax(-1)
    if part.reads_head:
        params = to_circuit_params(*part.logits(context))
    else:
        leaves, sums = part.head.logits(context.states[:, -1], context.tokens[:, -1])
        rows = leaves if head.ids is None else leaves[..., head.ids] + getattr(head, "log_weights", 0.0)
        params = to_circuit_params(rows, sums)
    return circuit_ops.conditionals(part.circuit, params, head.rows_of(text)[None])[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", ["nll", "kl"])
@pytest.mark.parametrize("sampled", [False, True])
def test_losses_and_gradients_are_those_of_a_plain_loop(
    kind: str, loss: str, sampled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mixture_loss, "CPU_LEAVES", 2000)
    drafter, batch = drafter_of(kind), texts(sampled)
    part = part_of(drafter)
    weights = 0.7 ** torch.arange(part.config.circuit_window)
    expected = plain(drafter, batch, loss)
    (expected @ weights / 3).backward()
    gradients = {name: weight.grad for name, weight in drafter.named_parameters()}
    drafter.zero_grad(set_to_none=True)
    found, _ = circuit_losses(part, WindowBatch.of(batch, loss == "kl"), weights)
    torch.testing.assert_close(found, expected.detach(), atol=1e-3, rtol=1e-4)
    (found @ weights / 3).backward()
    for name, weight in drafter.named_parameters():
        assert weight.grad is not None and gradients[name] is not None, name
        torch.testing.assert_close(weight.grad, gradients[name], atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_losses_in_bfloat16_are_those_in_float32_within_rounding(kind: str) -> None:
    """The target's head is in bfloat16, as on a GPU; gradients stay in float32."""
    drafter, batch = drafter_of(kind), texts(sampled=False)
    part, weights = part_of(drafter), torch.ones(part_of(drafter).config.circuit_window)
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        head = SharedHead(batch.head.embedding.to(dtype), batch.head.rows.to(dtype))
        typed = batch._replace(hidden=batch.hidden.to(dtype), head=head)
        drafter.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, dtype == torch.bfloat16):
            losses, _ = circuit_losses(part, WindowBatch.of(typed, needs_target=True), weights)
        losses.sum().backward()
        gradients = [weight.grad.flatten() for weight in drafter.parameters() if weight.grad is not None]
        found.append((losses, torch.cat(gradients)))
    assert found[1][1].dtype == torch.float32
    torch.testing.assert_close(found[1][0], found[0][0], rtol=0.03, atol=0.3)
    assert torch.cosine_similarity(found[0][1], found[1][1], dim=0) > 0.98


@torch.no_grad()
def test_a_circuit_behind_adapters_reads_their_states_at_the_starts() -> None:
    drafter, other, batch = mtpc_lora("hmm", leaves="table", sum_features=0), drafter_of("cp"), texts(sampled=False)
    part = drafter.autoregressive
    assert isinstance(part, AdaptedLayers)
    below = tiny_target()(batch.tokens, output_hidden_states=True).hidden_states[part.config.state_below]
    windows = WindowBatch.of(batch._replace(below={part.config.state_below: below}), False)
    found = windows.read_by(drafter).context.states[:, 0]
    starts = batch.chosen.nonzero().tolist()
    assert len(found) == len(starts) > 5
    for state, (row, start) in zip(found, starts, strict=True):
        torch.testing.assert_close(
            state, part(None, below[row, None, : start + 1], torch.arange(start + 1)[None])[0, -1]
        )
    assert torch.equal(windows.read_by(other).context.states, windows.context.states)
    assert (found - windows.context.states[:, 0]).abs().max() > 0.01
