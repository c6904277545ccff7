"""Tokens of every kind of tokenizer as bytes: those of a text, one after the other, are the text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from mtpc.errors import MTPCError
from mtpc.vocabulary.token_bytes import TokenBytes, intersection, token_bytes

BYTE_TARGET = Path(__file__).parents[3] / "weights" / "byte-target"
TEXTS = (
    "The quick brown fox jumps over the lazy dog.  It was the best of times, it was the worst of times;",
    "def area(width: int, height: int) -> int:\n    return width * height  # a comment\n",
    "Der Zug nach München fährt um 17:42 Uhr ab, 你好世界, naïve café, שלום עולם, 👩‍👩‍👧 e\u0301",
)
HOSTILE = (
    "", " ", "   \n\t ", " leading", "trailing ", "e\u0301\u0302", "שלום עולם", "👩‍👩‍👧‍👦🏳️‍🌈", "\x00\x01\x7f", "<0x41>",
    "a\r\nb", "日本語テキスト", "\U0010ffff", "<tool>", "x<tool>y", "\u2028", "\ufeff",
)  # fmt: skip
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def finished(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """With a special token, and one that is added as text."""
    tokenizer.add_tokens([AddedToken("<tool>", special=False, normalized=False)])
    tokenizer.add_special_tokens([AddedToken("<end>", special=True, normalized=False)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")


@cache
def byte_level() -> PreTrainedTokenizerFast:
    """As GPT-2, Llama 3 and Qwen have it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    return finished(tokenizer)


def spaced(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """With SentencePiece's spaces and byte fallback, as Llama 2 and Gemma have them."""
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()],
    )
    return finished(tokenizer)


@cache
def sentence_piece() -> PreTrainedTokenizerFast:
    """Merges of characters; what has no token falls back to bytes."""
    pieces = ["<unk>", *BYTES, "\u2581", "A", "t", "h", "e", "th", "the", "\u2581the"]
    merges = [("t", "h"), ("th", "e"), ("\u2581", "the")]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    return spaced(Tokenizer(models.BPE(vocabulary, merges, byte_fallback=True, unk_token="<unk>")))


@cache
def unigram() -> PreTrainedTokenizerFast:
    """Pieces with scores; what has no token falls back to bytes."""
    pieces = [("<unk>", 0.0), *((byte, -9.0) for byte in BYTES), ("\u2581the", -1.0), ("\u2581", -2.0), ("A", -3.0)]
    return spaced(Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True)))


@cache
def byte_target() -> PreTrainedTokenizerFast:
    """Of the byte-level model that ships."""
    return AutoTokenizer.from_pretrained(BYTE_TARGET)


@cache
def encoding() -> tiktoken.Encoding:
    """One of tiktoken: bytes, and a few merges."""
    ranks = {bytes([byte]): byte for byte in range(256)} | {b"th": 256, b"the": 257, b" the": 258}
    return tiktoken.Encoding("toy", pat_str=r".+|\s", mergeable_ranks=ranks, special_tokens={"<end>": 259})


def test_tokens_of_a_text_are_the_text() -> None:
    for tokenizer in (byte_level(), sentence_piece(), unigram(), byte_target()):
        read = token_bytes(tokenizer)
        for text in (*TEXTS, *HOSTILE):
            if tokenizer is unigram() and text == "<0x41>":  # which SentencePiece itself would not take for the byte
                continue
            ids = tokenizer(text, add_special_tokens=False).input_ids
            assert read.text_of(ids) == text.encode(), (tokenizer, text)
    read = token_bytes(encoding())
    assert all(read.text_of(encoding().encode(text)) == text.encode() for text in (*TEXTS, *HOSTILE))
    assert (read.tokens[258], read.tokens[259], read.special) == (b" the", None, {259})


@given(st.text(max_size=40))
@settings(deadline=None, max_examples=150)
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


def test_word_pieces() -> None:
    """Where a word goes on there is no space."""
    vocabulary = {"[UNK]": 0, "the": 1, "##re": 2}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Whitespace(), decoders.WordPiece()
    read = token_bytes(finished(tokenizer))
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
        (unigram(), encoding()),
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
    read, other = token_bytes(sentence_piece()), token_bytes(encoding())
    (letter,) = sentence_piece()("A", add_special_tokens=False).input_ids
    both = intersection(read, other)
    assert read.tokens.count(b"A") == 2 and letter in both.draft
    assert both.target[list(both.draft).index(letter)] == ord("A")


def test_what_cannot_be_compared_is_one_sentence() -> None:
    nothing: frozenset[int] = frozenset()
    some, others = TokenBytes((b"a", None), frozenset({1}), nothing), TokenBytes((b"b",), nothing, nothing)
    with pytest.raises(MTPCError, match="no token in common"):
        intersection(some, others)
    with pytest.raises(MTPCError, match="cannot decode single tokens"):
        token_bytes(SimpleNamespace())
    with pytest.raises(MTPCError, match="WordLevel"):
        token_bytes(finished(Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))))
