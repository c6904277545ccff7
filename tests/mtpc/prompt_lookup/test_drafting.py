"""Drafts of both kinds of parts with prompt lookup: drawn as stated, and stated as the sum over copied lengths."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mtpc.draft import DraftContext
from mtpc.lab.evaluation.reference import ReferenceDrafter
from mtpc.prompt_lookup.mixture import Copied, Copying
from mtpc.target_head.shared import SharedHead
from tests.mtpc.parallel.windows import VOCAB, inputs, make_circuit_part
from tests.support.tiny_models import SIZE, draft_layers_oracle, make_fastmtp, make_target
from tests.support.tiny_models import VOCAB as TARGET_VOCAB

ROWS, DRAFTS = 40_000, 2
CHANCES = torch.tensor([[0.4, 0.7]])


def joint_of(own: Tensor, copied: Tensor) -> Tensor:
    """sum_l P(L = l) ... for two tokens, [V, V]; own: q_d(x_1) q_d(x_2 | x_1) as ([V], [V, V])."""
    first, second = own
    (one, two), (r1, r2) = copied.tolist(), CHANCES[0].tolist()
    joint = (1 - r1) * first[:, None] * second
    joint[one] += r1 * (1 - r2) * second[one]
    joint[one, two] += r1 * r2
    return joint


@pytest.mark.parametrize("token_input", [False, True])
@pytest.mark.parametrize("circuit", ["ff", "cp", "hmm", "btree"])
@torch.inference_mode()
def test_a_window_draws_from_the_joint_of_copying_and_the_circuit(circuit: str, token_input: bool) -> None:
    window = make_circuit_part(circuit, window=3, token_input=token_input)
    hidden, token, _, _ = inputs(1, window)
    noise = torch.rand(ROWS, DRAFTS, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    known = DraftContext.of_target(hidden.expand(ROWS, -1), token.expand(ROWS))
    copied = torch.tensor([3, 3])
    copying = Copying.begin(Copied(copied.expand(ROWS, -1), CHANCES.expand(ROWS, -1)))
    draft = window.draft(known, torch.full((ROWS,), 0.8), noise, DRAFTS, "sampled", copying)
    pairs = torch.cartesian_prod(torch.arange(VOCAB), torch.arange(VOCAB))
    many = DraftContext.of_target(hidden.expand(len(pairs), -1), token.expand(len(pairs)))
    conditionals = window.log_probs(many, pairs, 0.8).exp().view(VOCAB, VOCAB, 2)
    expected = joint_of((conditionals[:, 0, 0], conditionals[..., 1]), copied)
    assert expected.sum().item() == pytest.approx(1.0, abs=1e-5)
    stated = draft.probs.gather(2, draft.tokens[..., None]).prod(1)[:, 0]
    torch.testing.assert_close(stated, expected[draft.tokens[:, 0], draft.tokens[:, 1]], atol=1e-5, rtol=1e-4)
    counts = torch.bincount(draft.tokens @ torch.tensor([VOCAB, 1]), minlength=VOCAB**2).view(VOCAB, VOCAB)
    often = ROWS * expected > 10
    error = (counts[often] - ROWS * expected[often]) / (ROWS * expected[often]).sqrt()
    assert error.abs().max() < 5  # standard deviations
    assert expected[often].sum() > 0.99


@pytest.mark.parametrize("circuit", ["cp", "hmm", "btree"])
@torch.inference_mode()
def test_greedy_rows_take_the_most_probable_token_of_what_is_stated(circuit: str) -> None:
    window = make_circuit_part(circuit)
    hidden, token, temperature, noise = inputs(10, window)
    chances = torch.linspace(0, 0.9, 10)[:, None].expand(-1, 4)
    copying = Copying.begin(Copied(torch.arange(4).expand(10, -1), chances))
    known = DraftContext.of_target(hidden, token)
    mixed = window.draft(known, temperature, noise, 4, "mixed", copying)
    rows = temperature == 0
    assert torch.equal(mixed.tokens[rows], mixed.probs[rows].argmax(-1))
    greedy = window.draft(known, None, None, 4, "greedy", copying)
    assert greedy.probs is None
    assert torch.equal(greedy.tokens[rows], mixed.tokens[rows])
    assert greedy.tokens[-1].tolist() == [0, 1, 2, 3]  # copied: its chance is 0.9
    nothing = Copying.begin(Copied(torch.arange(4).expand(10, -1), torch.zeros(10, 4)))
    plain = window.draft(known, None, None, 4, "greedy")
    assert torch.equal(window.draft(known, None, None, 4, "greedy", nothing).tokens, plain.tokens)


@pytest.mark.parametrize("ids", [None, [7, 2, 19, 11]], ids=["whole", "a draft vocabulary"])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_an_autoregressive_part_mixes_what_is_copied_into_every_step(ids: list[int] | None, temperature: float) -> None:
    target = make_target("llama")
    drafter, whole = make_fastmtp(target), SharedHead.of(target)
    head = whole if ids is None else whole.restricted(torch.tensor(ids))
    hidden, text = torch.randn(1, 6, SIZE), torch.randint(TARGET_VOCAB, (1, 7))
    copied = Copied(torch.tensor([[5, 7, 9, 5]]), torch.tensor([[0.6, 0.9, 0.3, 0.9]]))  # 5: outside of the vocabulary
    noise = torch.tensor([[0.9, 0.1, 0.5, 0.99]], dtype=torch.float64)
    draft = ReferenceDrafter(drafter, head).draft(hidden, text[:, 1:], 4, torch.tensor([temperature]), noise, copied)
    tokens = draft.tokens[0].tolist()
    _, logits = draft_layers_oracle(drafter.autoregressive, whole).draft(
        hidden[0], text[0].tolist(), 4, lambda step, _: tokens[step]
    )
    copying = Copying.begin(copied)
    for step, token in enumerate(tokens):
        own = torch.zeros(1, TARGET_VOCAB)
        rows = torch.arange(TARGET_VOCAB) if ids is None else torch.tensor(ids)
        own[0, rows] = (logits[step, rows] / (temperature or 1.0)).softmax(-1).float()
        expected = copying.mixed(own)[0]
        torch.testing.assert_close(draft.probs[0, step], expected, atol=1e-5, rtol=1e-4)
        if temperature == 0:
            assert token == int(expected.argmax())
        copying = copying.drafted(torch.tensor([token]), copying.drafter_probability(own))
