"""A target's tokens as symbols: what is stored comes back, and what is damaged is one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from mtpc.errors import MTPCError
from mtpc.methods.drafter import load_drafter, save_drafter
from mtpc.parallel.byte_vocabulary import END, ByteVocabulary, with_children
from mtpc.vocabulary.token_bytes import TokenBytes, token_bytes
from tests.support.small_tokenizers import COMPLETE
from tests.support.tiny_models import make_byte_circuit

WINDOW = 12


def vocabulary(tokens: TokenBytes, more: int = 0) -> ByteVocabulary:
    size = sum(len(each or b"") for each in tokens.tokens)
    made = ByteVocabulary(len(tokens.tokens) + more, size, WINDOW)
    made.set_tokens(tokens)
    return made


def test_tokens_come_back_and_are_spelled() -> None:
    for tokenizer in (make() for make in COMPLETE):
        tokens = token_bytes(tokenizer)
        made = vocabulary(tokens, 3)
        assert made.tokens() == tokens
        again = ByteVocabulary(len(tokens.tokens) + 3, len(made.text), WINDOW)
        again.load_state_dict(made.state_dict())
        again.loaded(Path("it"), tokens.digest())
        assert all(torch.equal(one, other) for one, other in zip(made.buffers(), again.buffers(), strict=True))
        for number, text in enumerate((*tokens.tokens, None, None, None)):
            symbols = [*(text or b""), END][:WINDOW]
            assert made.spelled[number, : made.sizes[number]].tolist() == symbols
        drafted = made.drafted.nonzero()[:, 0].tolist()
        assert sorted(drafted) == sorted(n for text, n in tokens.by_bytes().items() if len(text) < WINDOW)


def test_texts_are_their_symbols_up_to_the_window() -> None:
    tokens = TokenBytes((None, b"ab", b"abcdefg", b"x" * 20), frozenset({0}), frozenset())
    made, ids = vocabulary(tokens), torch.tensor([[1, 2, 1, 3], [0, 0, 2, 1], [3, 1, 1, 1], [2, 1, 2, 0]])
    text = made.begin(ids[:, 0])
    for place in range(4):
        for row in range(4):
            symbols = [s for token in ids[row, : place + 1] for s in (*(tokens.tokens[token] or b""), END)][:WINDOW]
            assert text.symbols[row, text.known[row]].tolist() == symbols
        text = made.follow(text, ids[:, place + 1]) if place < 3 else text


def test_a_uniform_drafter_shares_by_branches() -> None:
    """Of a, ab and b: at the root a half each, after a the end or b."""
    made = vocabulary(TokenBytes((b"a", b"ab", b"b", None), frozenset(), frozenset()))
    leaves = torch.full((1, 2, 257, 1), 1 / 257)
    assert made.probs(torch.ones(1, 1), leaves, None).tolist() == [[0.25, 0.25, 0.5, 0.0]]


def test_no_token_and_too_many() -> None:
    made = ByteVocabulary(1, 2, WINDOW)
    with pytest.raises(MTPCError, match="has 2 tokens, but the model only 1"):
        made.set_tokens(TokenBytes((b"a", b"b"), frozenset(), frozenset()))
    with pytest.raises(MTPCError, match="no token with bytes"):
        vocabulary(TokenBytes((None,), frozenset({0}), frozenset()))


def test_damaged_tokens_are_one_sentence(tmp_path: Path) -> None:
    tokens = TokenBytes((None, b"ab", b"c"), frozenset({0}), frozenset())
    drafter = make_byte_circuit("ff", tokens, 8, 1, 4)
    save_drafter(tmp_path, drafter, {})
    assert load_drafter(tmp_path).parallel.byte_vocabulary.tokens() == tokens  # type: ignore[union-attr]
    stored = load_file(tmp_path / "model.safetensors")
    assert {name for name in stored if not name.startswith("head.")} == {
        f"byte_vocabulary.{name}" for name in ("kinds", "lengths", "text")
    }
    for name, values in (
        ("text", [97, 98, 100]),
        ("lengths", [0, 1, 2]),
        ("lengths", [-1, 2, 2]),
        ("lengths", [0, 2, 2]),
        ("kinds", [0, 0, 0]),
        ("kinds", [1, 0, 9]),
    ):
        key = f"byte_vocabulary.{name}"
        save_file({**stored, key: torch.tensor(values, dtype=stored[key].dtype)}, tmp_path / "model.safetensors")
        with pytest.raises(MTPCError, match=r"model\.safetensors does not hold the tokens that config\.json"):
            load_drafter(tmp_path)


def test_sums_on_a_gpu_are_the_same_in_any_order() -> None:
    ends, parents = torch.rand(2, 50), torch.randint(50, (4000,))
    children = torch.rand(2, 4000) ** 8 / 80
    exact = with_children(ends, parents, children, exact=True)
    torch.testing.assert_close(exact, with_children(ends, parents, children))
    order = torch.randperm(4000)
    assert torch.equal(exact, with_children(ends, parents[order], children[:, order], exact=True))
    rounded = [with_children(ends, *one) for one in ((parents, children), (parents[order], children[:, order]))]
    assert not torch.equal(*rounded)  # as a control
