"""The plain decoding loop: lossless with honest drafters, the real one included, and not with a dishonest one."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
import torch

from mtpc.lab.statistics.chi_square import REJECT_BELOW, chi_square
from mtpc.methods.drafter import Drafter
from tests.oracles.decoding import DraftsTokens, Target, decode, decode_speculatively
from tests.oracles.toy import (
    CIRCUIT_RUNS,
    DRAFTS,
    START,
    STATES,
    TARGET,
    MarkovDrafter,
    circuit_drafter,
    random_chain,
    session,
)

RUNS = 1500
HONEST = MarkovDrafter(random_chain(STATES, seed=1), claimed=random_chain(STATES, seed=1))
DISHONEST = MarkovDrafter(random_chain(STATES, seed=1), claimed=random_chain(STATES, seed=2))
PERFECT = MarkovDrafter(TARGET.chain, claimed=TARGET.chain)


def session_of(drafter: Drafter | DraftsTokens) -> DraftsTokens:
    """A new session of a real drafter, or the toy drafter itself, which keeps nothing."""
    return session(drafter) if isinstance(drafter, Drafter) else drafter


def first_three(
    drafter: Drafter | DraftsTokens, temperature: float, runs: int = RUNS, target: Target = TARGET
) -> Counter[tuple[int, ...]]:
    """The first three tokens of seeded runs."""
    with torch.no_grad():
        return Counter(
            tuple(decode_speculatively(target, session_of(drafter), [START], 3, DRAFTS, temperature, seed).tokens)
            for seed in range(runs)
        )


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_honest_drafter_is_lossless(temperature: float) -> None:
    counts = first_three(HONEST, temperature)
    assert chi_square(counts, TARGET.joint(START, 3, temperature)).p > 1e-4


@pytest.mark.parametrize("kind", ["hmm", "btree"])
def test_circuit_drafters_are_lossless(kind: str) -> None:
    counts = first_three(circuit_drafter(kind), 1.0, CIRCUIT_RUNS)
    assert chi_square(counts, TARGET.joint(START, 3, 1.0)).p > 1e-4


def test_circuit_drafter_is_lossless_at_a_low_temperature_in_bfloat16() -> None:
    def low_precision(tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden, logits = TARGET(tokens)
        return hidden.bfloat16(), logits

    counts = first_three(circuit_drafter(dtype=torch.bfloat16), 0.5, CIRCUIT_RUNS, low_precision)
    assert chi_square(counts, TARGET.joint(START, 3, 0.5)).p > 1e-4


def test_control_dishonest_drafter_is_found() -> None:
    assert chi_square(first_three(DISHONEST, 1.0), TARGET.joint(START, 3, 1.0)).p < REJECT_BELOW


def test_the_target_alone_has_its_own_distribution() -> None:
    counts = Counter(tuple(decode(TARGET, [START], 3, 1.0, seed)) for seed in range(RUNS))
    assert chi_square(counts, TARGET.joint(START, 3, 1.0)).p > 1e-4


@pytest.mark.parametrize(
    "drafter",
    [HONEST, DISHONEST, PERFECT, circuit_drafter()],
    ids=["honest", "dishonest", "perfect", "circuit"],
)
def test_greedy_decoding_is_unchanged(drafter: Drafter | DraftsTokens) -> None:
    with torch.no_grad():
        for start in range(STATES):
            decoded = decode_speculatively(TARGET, session_of(drafter), [start], 20, DRAFTS, temperature=0.0)
            assert decoded.tokens == decode(TARGET, [start], 20, temperature=0.0)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_perfect_drafter_is_always_accepted(temperature: float) -> None:
    decoded = decode_speculatively(TARGET, PERFECT, [START], 41, DRAFTS, temperature)
    assert decoded.accepted == [DRAFTS] * 10
    assert decoded.acceptance_length() == DRAFTS + 1


@pytest.mark.parametrize("max_tokens", [1, 2, 7])
def test_number_of_tokens(max_tokens: int) -> None:
    assert len(decode_speculatively(TARGET, HONEST, [START], max_tokens, DRAFTS, 1.0).tokens) == max_tokens


def test_the_states_handed_to_the_session_predicted_the_tokens() -> None:
    """Each position once, with the token after it: its state is that of its predecessor, here the token itself."""
    seen: list[tuple[int, int]] = []
    steps: list[int] = []  # positions in each

    class Watched(MarkovDrafter):
        def draft(self, hidden, following, num_drafts, temperature, noise):  # type: ignore[no-untyped-def]
            seen.extend(zip(hidden[0].argmax(-1).tolist(), following[0].tolist(), strict=True))
            steps.append(hidden.shape[1])
            return super().draft(hidden, following, num_drafts, temperature, noise)

    decoded = decode_speculatively(TARGET, Watched(HONEST.chain, HONEST.claimed), [START], 40, DRAFTS, 1.0)
    text = [START, *decoded.tokens]
    assert seen[: len(text) - 1] == list(pairwise(text))[: len(seen)]
    assert steps == [1, *(accepted + 1 for accepted in decoded.accepted[:-1])]
