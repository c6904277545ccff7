"""The trie of a vocabulary: what it holds, and that q is a distribution over tokens that is drawn and stated alike."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise, product

import numpy as np
import pytest

from mtpc.errors import MTPCError
from mtpc.lab.statistics.chi_square import REJECT_BELOW, chi_square
from mtpc.vocabulary.token_bytes import TokenBytes, token_bytes
from mtpc.vocabulary.token_trie import (
    NextByteProbs,
    TokenTrie,
    check_one_decomposition,
    choose_branch,
    count_pauses,
    decompositions,
    token_trie,
)
from tests.mtpc.vocabulary.test_token_bytes import TEXTS, byte_level, byte_target, sentence_piece, unigram
from tests.oracles.heterogeneous import ToyDrafter, psi
from tests.oracles.trie_walk import walk


def vocabulary(*texts: bytes | None, fallback: frozenset[int] = frozenset()) -> TokenBytes:
    """Tokens of the given bytes, in order."""
    return TokenBytes(texts, frozenset(i for i, text in enumerate(texts) if text is None), fallback)


def random_vocabulary(seed: int) -> TokenBytes:
    """Over three bytes, up to four long; with a special token and one whose bytes are another's."""
    generator = np.random.default_rng(seed)
    every = [bytes(letters) for size in range(1, 5) for letters in product(b"ab\xff", repeat=size)]
    chosen = [every[i] for i in generator.choice(len(every), 3 + 9 * seed, replace=False)]
    return vocabulary(None, *chosen, chosen[0])


def random_drafter(seed: int, zeros: float = 0.3) -> NextByteProbs:
    """Other probabilities after each text, many of them 0, and after some texts nothing at all."""

    def probs(text: bytes) -> np.ndarray | None:
        generator = np.random.default_rng([seed, *text])
        if generator.random() < 0.1:
            return None
        drawn = generator.random(256) * (generator.random(256) > zeros)
        return drawn / drawn.sum()

    return probs


def random_counts(seed: int, size: int) -> np.ndarray:
    """Some tokens never occur."""
    generator = np.random.default_rng(seed)
    return generator.integers(0, 40, size) * (generator.random(size) > 0.3)


def prob_by_definition(
    tokens: TokenBytes, counts: np.ndarray, pauses: np.ndarray, token: int, drafter: NextByteProbs
) -> float:
    """The product of the module's docstring, from the texts of the tokens alone; smoothing 1."""
    drafted = {text: i for i, text in reversed(list(enumerate(tokens.tokens))) if text}
    text, result = tokens.tokens[token], 1.0
    if text is None or drafted[text] != token:
        return 0.0

    def passing(prefix: bytes, longer: bool = False) -> float:
        found = (i for each, i in drafted.items() if each.startswith(prefix) and len(each) >= len(prefix) + longer)
        return sum(counts[i] + 1.0 for i in found)

    for end in range(len(text) + 1):
        before = text[:end]
        children = {each[end] for each in drafted if each.startswith(before) and len(each) > end}
        stop = (counts[drafted[before]] + 1.0) / passing(before) if before in drafted else 0.0
        shares = {byte: passing(before + bytes([byte])) for byte in children}
        probs = drafter(before) if len(children) + (before in drafted) > 1 else None
        if probs is not None:
            mass = sum(probs[byte] for byte in children)
            if before in drafted:
                paused = pauses[drafted[before]] + 1.0
                stop = 1 - mass + mass * paused / (paused + passing(before, longer=True))
            shares = {byte: probs[byte] for byte in children} if mass > 0 else shares
        result *= stop if end == len(text) else (1 - stop) * shares[text[end]] / sum(shares.values())
    return result


def test_what_a_trie_holds() -> None:
    tokens = vocabulary(b"a", None, b"ab", b"abcd", b"x", b"", b"ab", b"x", fallback=frozenset({4}))
    counts = np.array([5, 90, 3, 1, 90, 90, 90, 7, 0])
    trie = token_trie(tokens, counts, vocab_size=9)
    texts = [b"", b"a", b"x", b"ab", b"abc", b"abcd"]
    assert trie.parent.tolist() == [-1, 0, 0, 1, 3, 4]
    assert trie.byte.tolist() == [-1, *(text[-1] for text in texts[1:])]
    assert trie.token.tolist() == [-1, 0, 7, 2, -1, 3]
    assert trie.children.tolist() == [1, 3, 4, 4, 5, 6, 6]
    assert trie.levels.tolist() == [0, 1, 3, 4, 5, 6]
    assert trie.node_of.tolist() == [1, -1, 3, 5, -1, -1, -1, 2, -1]
    assert trie.weight.tolist() == [20, 12, 8, 6, 2, 2]
    assert trie.stop.tolist() == [0, 6 / 12, 1, 4 / 6, 0, 1]
    assert trie.pause.tolist() == [0, 1 / 7, 1, 1 / 3, 0, 1]
    paused = token_trie(tokens, counts, vocab_size=9, pauses=np.array([3, 90, 1, 1, 90, 90, 90, 7, 0]))
    assert paused.pause.tolist() == [0, 4 / 10, 1, 2 / 4, 0, 1]
    assert paused.stop.tolist() == trie.stop.tolist()


def test_real_tokenizers() -> None:
    """Every token of a text is on the trie with its bytes, also where the tokenizer falls back to bytes."""
    for tokenizer in (byte_level(), sentence_piece(), unigram(), byte_target()):
        tokens = token_bytes(tokenizer)
        ids = [each for text in TEXTS for each in tokenizer(text, add_special_tokens=False).input_ids]
        trie = token_trie(tokens, np.bincount(ids, minlength=len(tokens.tokens)))
        for token in {*ids}:
            assert bytes(trie.byte[trie.path(token)[1:]].tolist()) == tokens.tokens[token]
        assert trie.weight[0] == len(ids) + (trie.node_of >= 0).sum()
        assert not [token for token in tokens.special if trie.path(token)]


def test_q_is_the_product_and_a_distribution() -> None:
    for seed in range(5):
        tokens = random_vocabulary(seed)
        counts, pauses = (random_counts(seed + i, len(tokens.tokens)) for i in range(2))
        trie, drafter = token_trie(tokens, counts, pauses=pauses), random_drafter(seed)
        q = [math.exp(trie.log_prob(token, drafter)) for token in range(len(tokens.tokens))]
        expected = [prob_by_definition(tokens, counts, pauses, i, drafter) for i in range(len(q))]
        assert q == pytest.approx(expected, rel=1e-12, abs=0)
        assert sum(q) == pytest.approx(1.0, abs=1e-12)
        assert q[0] == q[-1] == 0.0  # the special token, and the second one of equal bytes


def test_a_drafter_that_knows_nothing_leaves_the_smoothed_counts() -> None:
    tokens = random_vocabulary(3)
    counts = random_counts(3, len(tokens.tokens))
    trie = token_trie(tokens, counts)
    expected = np.where(trie.node_of >= 0, counts + 1.0, 0.0)
    silent: tuple[NextByteProbs, ...] = (lambda text: None, lambda text: np.zeros(256))
    for drafter in silent:
        q = np.exp([trie.log_prob(token, drafter) for token in range(len(counts))])
        assert q == pytest.approx(expected / expected.sum(), rel=1e-12)


def drawn(trie: TokenTrie, drafter: NextByteProbs, samples: int) -> tuple[Counter[int], dict[int, float]]:
    """Return the counts of tokens drawn by `samples` walks, and the probabilities that the walks state."""
    generator, counts, stated = np.random.default_rng(1), Counter[int](), {}
    for _ in range(samples):
        token, log_q = walk(trie, drafter, generator.random())
        counts[token] += 1
        stated[token] = math.exp(log_q)
    return counts, stated


def test_walks_draw_what_they_state() -> None:
    tokens = random_vocabulary(2)
    trie, drafter = token_trie(tokens), random_drafter(7)
    q = {token: math.exp(trie.log_prob(token, drafter)) for token in range(len(tokens.tokens))}
    counts, stated = drawn(trie, drafter, 3000)
    assert stated == pytest.approx({token: q[token] for token in stated}, rel=1e-12)
    assert chi_square(counts, q).p > 1e-4
    other = {t: math.exp(trie.log_prob(t, random_drafter(8, zeros=0.0))) for t in q}
    assert chi_square(counts, other).p < REJECT_BELOW


def test_walks_at_every_uniform_cover_the_tokens_in_proportion() -> None:
    """One uniform draws a whole token: probabilities in 64ths are met exactly by a grid, its ends included."""
    trie = token_trie(vocabulary(b"a", b"ab", b"b"), np.array([2, 0, 4]), pauses=np.array([2, 0, 0]))
    probs = np.zeros(256)
    probs[ord("a")], probs[ord("b")] = 0.25, 0.75
    found = Counter(walk(trie, lambda text: probs, uniform / 64)[0] for uniform in range(64))
    assert found == {0: 13, 1: 3, 2: 48}  # the token a ends at 1/4 + 3/4 * 3/4
    assert [walk(trie, lambda text: probs, uniform)[0] for uniform in (0.0, 1 - 2.0**-53)] == [0, 2]
    assert walk(trie, lambda text: probs, None) == (2, math.log(0.75))


def test_a_branch_leaves_a_uniform() -> None:
    branches = np.array([0.25, 0.0, 0.5, 0.25, 0.0])
    assert choose_branch(branches, None) == (2, 0.5, None)
    for uniform, index, rest in ((0.0, 0, 0.0), (0.125, 0, 0.5), (0.25, 2, 0.0), (0.5, 2, 0.5), (0.8125, 3, 0.25)):
        assert choose_branch(branches, uniform) == (index, branches[index], rest)
    for scale in (1.0, 0.7, 1.9999999999999998):  # rounding leads behind the last branch, or to a rest of 1
        index, _, rest = choose_branch(branches * scale, 1 - 2.0**-53)
        assert index == 3 and rest is not None and 0.9 < rest < 1.0


def test_pauses() -> None:
    """A token pauses where its own bytes and the next byte begin another token."""
    tokens = vocabulary(b"a", b"ab", b"b", b"bbb", None, b"c")
    trie = token_trie(tokens)
    assert count_pauses(trie, [0, 2, 2, 0, 1, 5, 0, 3, 2, 4, 2, 0, 0]).tolist() == [2, 0, 1, 0, 0, 0]
    assert count_pauses(trie, []).tolist() == [0] * 6
    for tokenizer in (byte_level(), sentence_piece()):
        tokens = token_bytes(tokenizer)
        ids = [each for text in TEXTS for each in tokenizer(text, add_special_tokens=False).input_ids]
        expected = np.zeros(len(tokens.tokens), dtype=int)
        for token, following in pairwise(ids):
            begun = (tokens.tokens[token] or b"") + (tokens.tokens[following] or b"")[:1]
            expected[token] += any((each or b"").startswith(begun) for each in tokens.tokens)
        assert count_pauses(token_trie(tokens), ids).tolist() == expected.tolist()
        assert 0 < expected.sum() < len(ids)


def test_the_drafter_is_not_called_where_one_branch_is_possible() -> None:
    calls: list[bytes] = []

    def drafter(text: bytes) -> np.ndarray:
        calls.append(text)
        return np.ones(256)

    trie = token_trie(vocabulary(b"abcx", b"abcy"))
    walk(trie, drafter, 0.0)
    trie.log_prob(1, drafter)
    assert calls == [b"abc", b"abc"]


def test_without_prefixes_q_is_psi_of_the_paper() -> None:
    """If no token is a prefix of another, a text determines its first token.

    Then q is psi of theorem 3.2 (arXiv:2502.05202).
    """
    texts = ["aa", "ab", "baa", "bab", "bb"]
    trie, drafter = token_trie(vocabulary(*(text.encode() for text in texts))), ToyDrafter(("a", "b"), seed=3)

    def probs(text: bytes) -> np.ndarray:
        row, after = np.zeros(256), drafter(text.decode())
        row[[*b"ab"]] = after["a"], after["b"]
        return row

    q = {text: math.exp(trie.log_prob(i, probs)) for i, text in enumerate(texts)}
    assert q == pytest.approx(psi(drafter, texts), rel=1e-12)


def test_decompositions() -> None:
    """Figure 1 and lemma 3.1 of arXiv:2502.05202, and a recursion on random vocabularies."""
    hello = {b"H", b"He", b"Hel", b"Hell", b"Hello", b"e", b"el", b"ell", b"ello", b"l", b"ll", b"lo", b"o"}
    assert decompositions(b"Hello", hello) == 14
    for size in range(1, 18):
        complete = {b"a" * each for each in range(1, size + 1)}
        assert decompositions(b"a" * size, complete) == 2 ** (size - 1)
    assert decompositions(bytes(range(200)), {bytes([each]) for each in range(256)}) == 1
    assert decompositions(b"ab", {b"a"}) == 0

    def listed(token: bytes, draft: set[bytes]) -> int:
        return 1 if not token else sum(listed(token[len(each) :], draft) for each in draft if token.startswith(each))

    for seed in range(1, 6):
        draft = {text for text in random_vocabulary(seed).tokens if text}
        for token in (bytes(letters) for letters in product(b"ab\xff", repeat=4)):
            assert decompositions(token, draft) == listed(token, draft)


def test_string_level_rejection_is_for_bytes() -> None:
    single = vocabulary(*(bytes([byte]) for byte in range(256)))
    target = vocabulary(b"a", b"the", None, "naïve".encode())
    check_one_decomposition(single, target)
    larger = vocabulary(*single.tokens, b"th", b"he")
    with pytest.raises(
        MTPCError, match=r"slrs requires .* 258 tokens and the target's token 'the' has 3 decomp.* up to 3;"
    ):
        check_one_decomposition(larger, target)
    with pytest.raises(MTPCError, match=r"slrs requires .* token 'naïve' has no decomposition"):
        check_one_decomposition(vocabulary(b"a"), target)


def test_what_cannot_be_a_trie_is_one_sentence() -> None:
    tokens = vocabulary(b"a", b"b")
    for message, build in {
        "vocab_size is 1, .* 2 tokens": lambda: token_trie(tokens, vocab_size=1),
        "one number for each of the target's 3 tokens, not 2": lambda: token_trie(tokens, np.ones(2), vocab_size=3),
        "one number for each of the target's 2 tokens, not 3": lambda: token_trie(tokens, pauses=np.ones(3)),
        "no token with bytes": lambda: token_trie(vocabulary(None)),
    }.items():
        with pytest.raises(MTPCError, match=message):
            build()
