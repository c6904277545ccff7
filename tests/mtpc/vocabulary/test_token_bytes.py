"""Tokens of every kind of tokenizer as bytes: those of a text, one after the other, are the text."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models

from mtpc.errors import MTPCError
from mtpc.vocabulary.token_bytes import TokenBytes, intersection, token_bytes
from small_tokenizers import (
    HOSTILE,
    TEXTS,
    byte_level,
    byte_target,
    finished,
    sentence_piece,
    unigram,
    word_piece,
)


def test_tokens_of_a_text_are_the_text() -> None:
    for tokenizer in (byte_level(), sentence_piece(), unigram(), byte_target()):
        read = token_bytes(tokenizer)
        for text in (*TEXTS, *HOSTILE):
            if tokenizer is unigram() and text == "<0x41>":  # which SentencePiece itself would not take for the byte
                continue
            ids = tokenizer(text, add_special_tokens=False).input_ids
            assert read.text_of(ids) == text.encode(), (tokenizer, text)


@given(st.text(max_size=40))
@settings(max_examples=150)
def test_any_text(text: str) -> None:
    for tokenizer in (byte_level(), sentence_piece(), unigram(), byte_target()):
        if "<end>" in text or "<|" in text or "\u2581" in text:  # what no text can hold: it is the tokenizer's own
            continue
        ids = tokenizer(text, add_special_tokens=False).input_ids
        assert token_bytes(tokenizer).text_of(ids) == text.encode()


def test_incomplete_characters_are_tokens_too() -> None:
    """The three bytes of one character, in a tokenizer for which each is a token."""
    read = token_bytes(byte_target())
    ids = byte_target()("語", add_special_tokens=False).input_ids
    assert [read.tokens[each] for each in ids] == [bytes([byte]) for byte in "語".encode()]


def test_added_tokens_are_what_they_are_decoded_to() -> None:
    """As a tokenizer's runs of spaces may be; some of them are tokens of the model as well."""
    for tokenizer, contents in (
        (sentence_piece(), ("\u2581\u2581", "x\u2581y", "<0x41>")),
        (byte_level(), ("\u0120\u0120", "x y", "語")),
    ):
        changed = deepcopy(tokenizer)
        changed.add_tokens([AddedToken(content, normalized=False) for content in contents])
        read, (a,) = token_bytes(changed), changed("a", add_special_tokens=False).input_ids[-1:]
        for content in contents:
            added = changed.convert_tokens_to_ids(content)
            assert f"a{read.text_of([added]).decode()}a" == changed.decode([a, added, a]).lstrip(), content


def test_word_pieces() -> None:
    """A piece that continues a word has no leading space."""
    read = token_bytes(word_piece())
    assert read.tokens[1:3] == (b" the", b"re")


def test_special_tokens_are_apart() -> None:
    for tokenizer in (byte_level(), sentence_piece()):
        end, tool = tokenizer.convert_tokens_to_ids(["<end>", "<tool>"])
        read = token_bytes(tokenizer)
        assert len(read.tokens) == len(tokenizer)
        assert read.special == {end} and read.tokens[end] is None
        assert read.tokens[tool] == b"<tool>"


def test_the_intersection_has_the_same_bytes() -> None:
    cases: Sequence[tuple[Any, Any]] = (
        (byte_level(), sentence_piece()),
        (sentence_piece(), byte_level()),
        (byte_target(), byte_level()),
        (unigram(), byte_level()),
    )
    for draft, target in cases:
        of_draft, of_target = token_bytes(draft), token_bytes(target)
        both = intersection(of_draft, of_target)
        assert len(both.draft) == len(both.target) == len(set(both.draft)) == len(set(both.target))
        assert (both.draft[1:] > both.draft[:-1]).all()
        texts = [of_draft.tokens[each] for each in both.draft]
        assert texts == [of_target.tokens[each] for each in both.target]
        expected = ({*of_draft.tokens} & {*of_target.tokens}) - {None, b""}
        assert {*texts} == expected


def test_of_equal_bytes_the_token_that_texts_hold_counts() -> None:
    read, other = token_bytes(sentence_piece()), token_bytes(byte_level())
    (letter,) = sentence_piece()("A", add_special_tokens=False).input_ids
    both = intersection(read, other)
    assert read.tokens.count(b"A") == 2 and letter in both.draft
    assert both.target[list(both.draft).index(letter)] == byte_level().convert_tokens_to_ids("A")


def test_what_cannot_be_compared_is_one_sentence() -> None:
    nothing: frozenset[int] = frozenset()
    some, others = TokenBytes((b"a", None), frozenset({1}), nothing), TokenBytes((b"b",), nothing, nothing)
    with pytest.raises(MTPCError, match="no token in common"):
        intersection(some, others)
    with pytest.raises(MTPCError, match="cannot decode single tokens"):
        token_bytes(SimpleNamespace())
    with pytest.raises(MTPCError, match="WordLevel"):
        token_bytes(finished(Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))))
