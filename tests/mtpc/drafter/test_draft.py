"""A draft against the circuit operations that the enumeration tests check."""

import pytest
import torch

from mtpc.circuits import temper
from mtpc.drafter import Drafter, DrafterConfig

VOCAB, HIDDEN, WINDOW = 7, 12, 6


def make_drafter(circuit: str, leaves: str = "shared", window: int = WINDOW, token_input: bool = False) -> Drafter:
    torch.manual_seed(0)
    config = DrafterConfig(
        circuit=circuit,
        window=window,
        rank=1 if circuit == "ff" else 3,
        hidden_size=HIDDEN,
        vocab_size=VOCAB,
        leaves=leaves,
        leaf_features=5,
        component_features=4,
        sum_features=6,
        trunk_size=8,
        token_input=token_input,
    )
    drafter = Drafter(config)
    with torch.no_grad():
        for parameter in drafter.parameters():
            parameter.normal_()
    return drafter.eval()


def inputs(rows: int, drafter: Drafter) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(rows, HIDDEN, generator=generator)
    token = torch.randint(VOCAB, (rows,), generator=generator)
    temperature = torch.tensor([1.0, 0.5, 0.0, 2.0, 0.0])[torch.arange(rows) % 5]
    return hidden, token, temperature, torch.rand(rows, drafter.noise_size, generator=generator)


@pytest.mark.parametrize("leaves", ["shared", "table"])
@pytest.mark.parametrize("circuit", ["ff", "cp", "hmm", "btree"])
@torch.inference_mode()
def test_sampled_drafts_carry_the_conditionals_of_the_conditioned_circuit(circuit: str, leaves: str):
    drafter = make_drafter(circuit, leaves)
    hidden, token, _, noise = inputs(8, drafter)
    temperature = torch.linspace(0.3, 2.0, 8)
    draft = drafter.draft(hidden, token, temperature, noise, WINDOW - 1, "sampled")
    params = temper(drafter.head(hidden, token), temperature)
    window = torch.cat([token[:, None], draft.tokens], 1)
    expected = drafter.circuit.conditionals(drafter.circuit.condition(params, token), window)[:, 1:].exp()
    torch.testing.assert_close(draft.probs, expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(draft.probs.sum(-1), torch.ones(8, WINDOW - 1), atol=1e-5, rtol=0)


@pytest.mark.parametrize("circuit", ["ff", "cp", "hmm", "btree"])
@torch.inference_mode()
def test_a_head_that_reads_the_token_drafts_from_the_whole_circuit(circuit: str):
    drafter = make_drafter(circuit, token_input=True)
    hidden, token, _, noise = inputs(8, drafter)
    temperature = torch.linspace(0.3, 2.0, 8)
    draft = drafter.draft(hidden, token, temperature, noise, WINDOW - 1, "sampled")
    params = temper(drafter.head(hidden, token), temperature)
    expected = drafter.circuit.conditionals(params, draft.tokens).exp()
    assert draft.tokens.shape == (8, WINDOW - 1)
    torch.testing.assert_close(draft.probs, expected, atol=1e-5, rtol=1e-4)
    greedy = drafter.draft(hidden, token, None, None, WINDOW - 2, "greedy").tokens
    assert torch.equal(greedy, drafter.circuit.greedy(drafter.head(hidden, token))[:, :-1])


@pytest.mark.parametrize("token_input", [False, True])
@pytest.mark.parametrize("circuit", ["ff", "cp", "hmm", "btree"])
@torch.inference_mode()
def test_drafts_follow_their_stated_distribution(circuit: str, token_input: bool):
    drafter = make_drafter(circuit, window=3, token_input=token_input)
    rows = 40_000
    hidden, token, _, noise = inputs(1, drafter)
    noise = torch.rand(rows, drafter.noise_size, generator=torch.Generator().manual_seed(2))
    draft = drafter.draft(hidden.expand(rows, -1), token.expand(rows), torch.ones(rows), noise, 2, "sampled")
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
    drafter = make_drafter(circuit, token_input=token_input)
    hidden, token, temperature, noise = inputs(10, drafter)
    mixed = drafter.draft(hidden, token, temperature, noise, 4, "mixed")
    for row in range(10):
        one = slice(row, row + 1)
        mode = "greedy" if temperature[row] == 0 else "sampled"
        alone = drafter.draft(hidden[one], token[one], temperature[one], noise[one], 4, mode)
        assert torch.equal(mixed.tokens[one], alone.tokens)
        if mode == "greedy":
            assert torch.equal(mixed.probs[row].argmax(-1), alone.tokens[0])
            assert torch.equal(mixed.probs[row].sum(-1), torch.ones(4))
        else:
            torch.testing.assert_close(mixed.probs[one], alone.probs)


@pytest.mark.parametrize("token_input", [False, True])
@pytest.mark.parametrize("leaves", ["shared", "table"])
@pytest.mark.parametrize("circuit", ["ff", "cp", "hmm", "btree"])
@torch.inference_mode()
def test_a_shortened_drafter_has_the_same_distribution_of_fewer_drafts(circuit: str, leaves: str, token_input: bool):
    drafter = make_drafter(circuit, leaves, token_input=token_input)
    short = drafter.shortened(3)
    assert (short is drafter) is (circuit == "btree")
    assert sum(p.numel() for p in short.parameters()) < sum(p.numel() for p in drafter.parameters()) or short is drafter
    hidden, token, _, _ = inputs(8, drafter)
    greedy = drafter.draft(hidden, token, None, None, 3, "greedy").tokens
    assert torch.equal(short.draft(hidden, token, None, None, 3, "greedy").tokens, greedy)
    x = torch.randint(VOCAB, (8, WINDOW))
    x[:, 0] = token
    found = [
        each.circuit.prefix_log_probs(each.head(hidden, token), x[:, 1 - each.given :][:, : each.config.circuit_window])
        for each in (short, drafter)
    ]
    kept = found[0].shape[1]
    torch.testing.assert_close(found[0], found[1][:, :kept], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("token_input", [False, True])
def test_ff_ignores_the_evidence_unless_its_head_reads_it_and_the_others_use_it(token_input: bool):
    for circuit in ("ff", "cp", "hmm", "btree"):
        drafter = make_drafter(circuit, token_input=token_input)
        hidden, token, _, noise = inputs(32, drafter)
        with torch.inference_mode():
            drafts = [
                drafter.draft(hidden, torch.full_like(token, first), torch.ones(32), noise, 1, "sampled")
                for first in (0, 1)
            ]
        same = torch.allclose(drafts[0].probs, drafts[1].probs, atol=1e-4)
        assert same is (circuit == "ff" and not token_input)
