"""Rules for a drafter with another vocabulary: the order and the inequalities of arXiv:2502.05202 hold."""

from __future__ import annotations

import re

import pytest

from benchmarks.heterogeneous_rules import LETTERS, RULES, SHARES, ToyPair, acceptance, by_trie, main, make_pair, terms
from tests.oracles.heterogeneous import on_intersection


def test_pairs_have_the_vocabularies_in_common_that_they_say() -> None:
    for share in SHARES:
        pair = make_pair(share, noise=0.5, seed=3)
        draft = pair.drafter("ab")
        assert len(draft) == len(pair.target) == 20 + len(LETTERS)
        assert len({*draft} & {*pair.target}) == 20 * share + len(LETTERS)
        assert sum(draft.values()) == pytest.approx(1) == sum(pair.target.values())
        assert draft == make_pair(share, noise=0.5, seed=3).drafter("ab") != pair.drafter("")


def test_every_pair_keeps_the_theorems() -> None:
    for share in SHARES:
        for seed in range(5):
            union, slem, slrs, tli = (rule(make_pair(share, 0.5, seed)) for rule in RULES.values())
            assert 0 < slem < slrs < 1
            assert union == pytest.approx(tli) if share == 1 else union < tli


def test_the_order_and_the_relative_form() -> None:
    table = acceptance(models=2, noise=0.5)
    assert [row[0][:5] for row in table.rows] == ["Alg 5", "Alg 1", "Alg 2", "Alg 3", "Alg 4"]
    rates = [[[float(x) for x in re.findall(r"[\d.]+", cell)] for cell in row[1:]] for row in table.rows[1:]]
    for row in rates:
        for (rate, relative), (union, one) in zip(row, rates[0], strict=True):
            assert relative == pytest.approx(rate / union, abs=0.02) and one == 1


def test_the_trie_of_a_drafter_over_letters() -> None:
    """Its q is a distribution, and the first letter is the drafter's: nothing stops before it."""
    pair = ToyPair(make_pair(0.0, 0.5, 1).target, lambda text: dict(LETTERS))
    q = by_trie(pair)
    assert sum(q.values()) == pytest.approx(1.0) and min(q.values()) > 0
    first = {letter: sum(each for token, each in q.items() if token[0] == letter) for letter in LETTERS}
    assert first == pytest.approx(on_intersection(dict(LETTERS), [*LETTERS]))


def test_decompositions_are_at_most_those_of_lemma_3_1() -> None:
    for row in terms(models=3).rows:
        mean, *most = (float(cell) for cell in row[1:])
        assert 1 <= mean <= most[0] <= most[1] == 2 ** (int(row[0]) - 1) and most[2] == 1


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--models", "1"])
    printed = capsys.readouterr().out
    assert "| Alg 3 (SLRS) |" in printed and "Decompositions of a token" in printed
