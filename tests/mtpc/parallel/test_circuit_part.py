"""A draft against the circuit operations that the enumeration tests check."""

import pytest
import torch

from mtpc.draft import DraftContext
from tests.mtpc.parallel.windows import VOCAB, WINDOW, inputs, make_circuit_part
from tests.oracles import circuit_ops


@pytest.mark.parametrize("leaves", ["shared", "table"])
@pytest.mark.parametrize("circuit", ["ff", "cp", "hmm", "btree"])
@torch.inference_mode()
def test_sampled_drafts_carry_the_conditionals_of_the_conditioned_circuit(circuit: str, leaves: str):
    window = make_circuit_part(circuit, leaves)
    hidden, token, _, noise = inputs(8, window)
    temperature = torch.linspace(0.3, 2.0, 8)
    draft = window.draft(DraftContext.of_target(hidden, token), temperature, noise, WINDOW - 1, "sampled")
    params = circuit_ops.temper(window.head(hidden, token), temperature)
    x = torch.cat([token[:, None], draft.tokens], 1)
    expected = circuit_ops.conditionals(window.circuit, circuit_ops.condition(window.circuit, params, token), x)[
        :, 1:
    ].exp()
    torch.testing.assert_close(draft.probs, expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(draft.probs.sum(-1), torch.ones(8, WINDOW - 1), atol=1e-5, rtol=0)


@pytest.mark.parametrize("circuit", ["ff", "cp", "hmm", "btree"])
@torch.inference_mode()
def test_a_head_that_reads_the_token_drafts_from_the_whole_circuit(circuit: str):
    window = make_circuit_part(circuit, token_input=True)
    hidden, token, _, noise = inputs(8, window)
    temperature = torch.linspace(0.3, 2.0, 8)
    draft = window.draft(DraftContext.of_target(hidden, token), temperature, noise, WINDOW - 1, "sampled")
    params = circuit_ops.temper(window.head(hidden, token), temperature)
    expected = circuit_ops.conditionals(window.circuit, params, draft.tokens).exp()
    assert draft.tokens.shape == (8, WINDOW - 1)
    torch.testing.assert_close(draft.probs, expected, atol=1e-5, rtol=1e-4)
    greedy = window.draft(DraftContext.of_target(hidden, token), None, None, WINDOW - 2, "greedy").tokens
    assert torch.equal(greedy, circuit_ops.greedy(window.circuit, window.head(hidden, token))[:, :-1])


@pytest.mark.parametrize("token_input", [False, True])
@pytest.mark.parametrize("circuit", ["ff", "cp", "hmm", "btree"])
@torch.inference_mode()
def test_drafts_follow_their_stated_distribution(circuit: str, token_input: bool):
    window = make_circuit_part(circuit, window=3, token_input=token_input)
    rows = 40_000
    hidden, token, _, noise = inputs(1, window)
    noise = torch.rand(rows, 2, generator=torch.Generator().manual_seed(2))
    draft = window.draft(
        DraftContext.of_target(hidden.expand(rows, -1), token.expand(rows)), torch.ones(rows), noise, 2, "sampled"
    )
    joint = torch.zeros(VOCAB, VOCAB)
    joint[draft.tokens[:, 0], draft.tokens[:, 1]] = draft.probs[:, 0].gather(1, draft.tokens[:, :1])[:, 0]
    joint[draft.tokens[:, 0], draft.tokens[:, 1]] *= draft.probs[:, 1].gather(1, draft.tokens[:, 1:])[:, 0]
    counts = torch.bincount(draft.tokens[:, 0] * VOCAB + draft.tokens[:, 1], minlength=VOCAB**2).view(VOCAB, VOCAB)
    seen = joint > 0
    error = (counts[seen] - rows * joint[seen]) / (rows * joint[seen]).sqrt()
    assert error.abs().max() < 5  # standard deviations
    assert joint.sum() > 0.99


@pytest.mark.parametrize("token_input", [False, True])
@pytest.mark.parametrize("circuit", ["ff", "cp", "hmm", "btree"])
@torch.inference_mode()
def test_mixed_batches_equal_their_rows_alone(circuit: str, token_input: bool):
    window = make_circuit_part(circuit, token_input=token_input)
    hidden, token, temperature, noise = inputs(10, window)
    mixed = window.draft(DraftContext.of_target(hidden, token), temperature, noise, 4, "mixed")
    for row in range(10):
        one = slice(row, row + 1)
        mode = "greedy" if temperature[row] == 0 else "sampled"
        alone = window.draft(DraftContext.of_target(hidden[one], token[one]), temperature[one], noise[one], 4, mode)
        assert torch.equal(mixed.tokens[one], alone.tokens)
        if mode == "greedy":
            assert torch.equal(mixed.probs[row].argmax(-1), alone.tokens[0])
        else:
            torch.testing.assert_close(mixed.probs[one], alone.probs)


@pytest.mark.parametrize("token_input", [False, True])
@pytest.mark.parametrize("leaves", ["shared", "table"])
@pytest.mark.parametrize("circuit", ["ff", "cp", "hmm", "btree"])
@torch.inference_mode()
def test_a_shortened_window_has_the_same_distribution_of_fewer_drafts(circuit: str, leaves: str, token_input: bool):
    window = make_circuit_part(circuit, leaves, token_input=token_input)
    short = window.shortened(3)
    assert (short is window) is (circuit == "btree")
    assert sum(p.numel() for p in short.parameters()) < sum(p.numel() for p in window.parameters()) or short is window
    hidden, token, _, _ = inputs(8, window)
    greedy = window.draft(DraftContext.of_target(hidden, token), None, None, 3, "greedy").tokens
    assert torch.equal(short.draft(DraftContext.of_target(hidden, token), None, None, 3, "greedy").tokens, greedy)
    x = torch.randint(VOCAB, (8, WINDOW))
    x[:, 0] = token
    log_probs = [
        circuit_ops.prefix_log_probs(
            part.circuit, part.head(hidden, token), x[:, 1 - part.num_evidence :][:, : part.config.circuit_window]
        )
        for part in (short, window)
    ]
    kept = log_probs[0].shape[1]
    torch.testing.assert_close(log_probs[0], log_probs[1][:, :kept], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_shortened_window_is_of_the_type_of_the_whole(dtype: torch.dtype, learns: bool):
    window = make_circuit_part("hmm").to(dtype).requires_grad_(learns).train(learns)
    short = window.shortened(2)
    assert {weight.dtype for weight in short.parameters()} == {dtype}
    assert {weight.requires_grad for weight in short.parameters()} == {short.training} == {learns}


@pytest.mark.parametrize("token_input", [False, True])
def test_ff_ignores_the_evidence_unless_its_head_reads_it_and_the_others_use_it(token_input: bool):
    for circuit in ("ff", "cp", "hmm", "btree"):
        window = make_circuit_part(circuit, token_input=token_input)
        hidden, token, _, noise = inputs(32, window)
        with torch.inference_mode():
            drafts = [
                window.draft(
                    DraftContext.of_target(hidden, torch.full_like(token, first)), torch.ones(32), noise, 1, "sampled"
                )
                for first in (0, 1)
            ]
        same = torch.allclose(drafts[0].probs, drafts[1].probs, atol=1e-4)
        assert same is (circuit == "ff" and not token_input)
