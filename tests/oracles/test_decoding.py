"""The plain decoding loop: lossless with honest drafters, the real one included, and not with a dishonest one."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from mtpc.drafter import Drafter, DrafterConfig
from tests.oracles.decoding import DraftsTokens, Target, decode, decode_speculatively
from tests.oracles.toy import MarkovDrafter, MarkovTarget, random_chain
from tests.statistics import REJECT_BELOW, chi_square_p_value

STATES, START, DRAFTS = 4, 2, 3
RUNS, CIRCUIT_RUNS = 1500, 600  # the real drafter costs about 8 ms a run
TARGET = MarkovTarget(random_chain(STATES, seed=0))
HONEST = MarkovDrafter(random_chain(STATES, seed=1), claimed=random_chain(STATES, seed=1))
DISHONEST = MarkovDrafter(random_chain(STATES, seed=1), claimed=random_chain(STATES, seed=2))
PERFECT = MarkovDrafter(TARGET.chain, claimed=TARGET.chain)


def circuit_drafter(kind: str = "btree", dtype: torch.dtype = torch.float32) -> Drafter:
    """A real drafter with random weights for the toy target."""
    torch.manual_seed(0)
    drafter = Drafter(DrafterConfig(kind, DRAFTS + 1, 1 if kind == "ff" else 3, hidden_size=STATES, vocab_size=STATES))
    with torch.no_grad():
        for parameter in drafter.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.5)
    return drafter.to(dtype).eval()


def first_three(
    drafter: DraftsTokens, temperature: float, runs: int = RUNS, target: Target = TARGET
) -> Counter[tuple[int, ...]]:
    """The first three tokens of seeded runs."""
    with torch.no_grad():
        return Counter(
            tuple(decode_speculatively(target, drafter, [START], 3, DRAFTS, temperature, seed).tokens)
            for seed in range(runs)
        )


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_honest_drafter_is_lossless(temperature: float) -> None:
    counts = first_three(HONEST, temperature)
    assert chi_square_p_value(counts, TARGET.joint(START, 3, temperature)) > 1e-4


@pytest.mark.parametrize("kind", ["hmm", "btree"])
def test_circuit_drafters_are_lossless(kind: str) -> None:
    counts = first_three(circuit_drafter(kind), 1.0, CIRCUIT_RUNS)
    assert chi_square_p_value(counts, TARGET.joint(START, 3, 1.0)) > 1e-4


def test_circuit_drafter_is_lossless_at_a_low_temperature_in_bfloat16() -> None:
    def low_precision(tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden, logits = TARGET(tokens)
        return hidden.bfloat16(), logits

    counts = first_three(circuit_drafter(dtype=torch.bfloat16), 0.5, CIRCUIT_RUNS, low_precision)
    assert chi_square_p_value(counts, TARGET.joint(START, 3, 0.5)) > 1e-4


def test_control_dishonest_drafter_is_found() -> None:
    assert chi_square_p_value(first_three(DISHONEST, 1.0), TARGET.joint(START, 3, 1.0)) < REJECT_BELOW


def test_the_target_alone_has_its_own_distribution() -> None:
    counts = Counter(tuple(decode(TARGET, [START], 3, 1.0, seed)) for seed in range(RUNS))
    assert chi_square_p_value(counts, TARGET.joint(START, 3, 1.0)) > 1e-4


@pytest.mark.parametrize(
    "drafter",
    [HONEST, DISHONEST, PERFECT, circuit_drafter()],
    ids=["honest", "dishonest", "perfect", "circuit"],
)
def test_greedy_decoding_is_unchanged(drafter: DraftsTokens) -> None:
    with torch.no_grad():
        for start in range(STATES):
            decoded = decode_speculatively(TARGET, drafter, [start], 20, DRAFTS, temperature=0.0)
            assert decoded.tokens == decode(TARGET, [start], 20, temperature=0.0)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_perfect_drafter_is_always_accepted(temperature: float) -> None:
    decoded = decode_speculatively(TARGET, PERFECT, [START], 41, DRAFTS, temperature)
    assert decoded.accepted == [DRAFTS] * 10
    assert decoded.acceptance_length() == DRAFTS + 1


@pytest.mark.parametrize("max_tokens", [1, 2, 7])
def test_number_of_tokens(max_tokens: int) -> None:
    assert len(decode_speculatively(TARGET, HONEST, [START], max_tokens, DRAFTS, 1.0).tokens) == max_tokens


def test_the_state_handed_to_the_drafter_predicted_the_token() -> None:
    """The hidden state is that of the position before the token: here, its predecessor."""
    seen = []

    class Watched(MarkovDrafter):
        def draft(self, hidden, token, temperature, noise, num_drafts, mode):  # type: ignore[no-untyped-def]
            seen.append((int(hidden.argmax()), int(token)))
            return super().draft(hidden, token, temperature, noise, num_drafts, mode)

    decoded = decode_speculatively(TARGET, Watched(HONEST.chain, HONEST.claimed), [START], 40, DRAFTS, 1.0)
    text, position = [START, *decoded.tokens], 1
    for (state, token), accepted in zip(seen, decoded.accepted, strict=True):
        assert (state, token) == (text[position - 1], text[position])
        position += accepted + 1
        if position >= len(text):
            break
