"""Table 3 and the theorems of arXiv:2502.05202, exactly, on random toy vocabularies."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest

from mtpc.vocabulary.token_trie import decompositions
from tests.oracles.heterogeneous import (
    ToyDrafter,
    exact_match_rate,
    first_token,
    on_intersection,
    psi,
    random_target,
    random_vocabulary,
    rejection_output,
    rejection_rate,
)

CASES = [  # target vocabulary, drafter, seed
    (random_vocabulary(size, longest, seed), ToyDrafter(random_vocabulary(4, longest, seed + 50), seed), seed)
    for size, longest, seed in product((3, 6, 9), (2, 3), range(4))
    if size <= 6 or longest > 2
]


def test_psi_is_a_distribution_and_stopping_early_does_not_change_it() -> None:
    """As many draft tokens as the longest token has letters always determine the first token."""
    for target, drafter, _ in CASES:
        found = psi(drafter, target)
        assert sum(found.values()) == pytest.approx(1.0, abs=1e-12)
        late = dict.fromkeys(target, 0.0)
        for sequence in product(drafter.vocabulary, repeat=max(map(len, target))):
            texts = ["".join(sequence[:i]) for i in range(len(sequence))]
            weight = math.prod(drafter(text)[token] for text, token in zip(texts, sequence, strict=True))
            late[first_token("".join(sequence), target)] += weight
        assert found == pytest.approx(late, abs=1e-12)


def test_psi_sums_over_decompositions() -> None:
    """A drafter that only knows 'hello_', 'world' and 'hello_world': the example of section 3.3."""
    drafts = {"hello_": 0.5, "world": 0.3, "hello_world": 0.2}
    target = ["hello_world", "hello_", "world"]
    assert decompositions(b"hello_world", {token.encode() for token in drafts}) == 2
    expected = {"hello_world": 0.2 + 0.5 * 0.3, "hello_": 0.5 * (0.5 + 0.2), "world": 0.3}
    assert psi(lambda text: drafts, target) == pytest.approx(expected)


def test_rejection_sampling_accepts_more_than_exact_matching() -> None:
    """Theorem 3.1, and its step from q to psi: sum p psi <= sum min(p, psi)."""
    for target, drafter, seed in CASES:
        p, candidate = random_target(target, seed), psi(drafter, target)
        assert exact_match_rate(p, p) < rejection_rate(p, p) == pytest.approx(1.0)
        assert 0.0 < exact_match_rate(p, candidate) < rejection_rate(p, candidate) < 1.0
    certain = {"a": 1.0, "b": 0.0}  # a trivial target, where both are the same
    assert exact_match_rate(certain, {"a": 0.3, "b": 0.7}) == rejection_rate(certain, {"a": 0.3, "b": 0.7})


def test_the_intersection_accepts_at_least_as_much_as_the_union() -> None:
    """Theorem 4.1; strictly more where the drafter has mass outside of it and some to gain inside."""
    more = 0
    for target, drafter, seed in CASES:
        p, q = random_target(target, seed), drafter("")
        common = on_intersection(q, target)
        union, tli = rejection_rate(p, q), rejection_rate(p, common)
        assert tli >= union - 1e-12
        gains = len(common) < len(q) and any(q[token] < p[token] for token in common)
        assert (tli > union + 1e-12) == gains
        more += gains
    assert more > len(CASES) / 2


def test_every_rule_is_lossless() -> None:
    """Theorems 3.2 and 4.1; the control takes psi for one decomposition, the token itself."""
    wrong = 0
    for target, drafter, seed in CASES:
        p, q, candidate = random_target(target, seed), drafter(""), psi(drafter, target)
        for draft in (q, on_intersection(q, target), candidate):
            output = rejection_output(p, draft)
            assert output == pytest.approx({token: p.get(token, 0.0) for token in output}, abs=1e-12)
        alone = {token: q.get(token, 0.0) for token in target}
        output = rejection_output(p, candidate, claimed=alone)
        wrong += max(abs(output[token] - p[token]) for token in p) > 0.01
    assert wrong > len(CASES) / 2


def test_the_examples_of_section_2() -> None:
    """Disjoint vocabularies, and a drafter that may write 'aa' for a target that only has 'a'."""
    assert rejection_rate({"a": 1.0}, {"b": 1.0}) == 0.0
    assert on_intersection({"b": 1.0}, ["a"]) == {}
    p, q = {"a": 1.0}, {"a": 0.4, "aa": 0.6}
    assert rejection_rate(p, q) == 0.4
    assert rejection_rate(p, on_intersection(q, ["a"])) == 1.0
    assert exact_match_rate(p, psi(lambda text: q, ["a"])) == pytest.approx(1.0)
    p = {"a": 0.5, "b": 0.5}
    assert rejection_rate(p, {"a": 0.25, "c": 0.75}) == 0.25
    assert rejection_rate(p, on_intersection({"a": 0.25, "c": 0.75}, ["a", "b"])) == 0.5


def test_drawn_candidates_follow_psi() -> None:
    """Algorithm 3, lines 2 to 4, as a sampler."""
    target, drafter, _ = CASES[-1]
    generator, expected = np.random.default_rng(0), psi(drafter, target)
    counts: Counter[str] = Counter()
    for _ in range(3000):
        text = ""
        while not text or any(len(each) > len(text) and each.startswith(text) for each in target):
            text += generator.choice(drafter.vocabulary, p=list(drafter(text).values()))
        counts[first_token(text, target)] += 1
    for token, probability in expected.items():
        assert counts[token] / 3000 == pytest.approx(probability, abs=5 * (probability / 3000) ** 0.5 + 1e-3)
