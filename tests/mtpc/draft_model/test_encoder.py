"""Tokens of any bytes are these bytes, whatever a tokenizer does to a text."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, normalizers, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from mtpc.draft_model.encoder import ByteEncoder
from small_tokenizers import (
    COMPLETE,
    HOSTILE,
    TEXTS,
    byte_level,
    byte_target,
    composed,
    prefixed,
    prompts,
    sentence_piece,
    unigram,
    word_piece,
)

RUNS = Path(__file__).parents[3] / "runs"
hostile_bytes = st.lists(
    st.one_of(
        st.sampled_from([text.encode() for text in (*HOSTILE, *TEXTS, "<end>", "\u2581", "the e\u0301")]),
        st.text(max_size=20).map(str.encode),
        st.binary(max_size=8),
    ),
    max_size=6,
).map(b"".join)


@cache
def encoder(tokenizer: Any) -> ByteEncoder:
    return ByteEncoder(tokenizer)


def copied(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(tokenizer.backend_tokenizer.to_str()))


@given(hostile_bytes)
@settings(max_examples=150)
def test_the_tokens_of_any_bytes_are_these_bytes(text: bytes) -> None:
    for tokenizer in COMPLETE:
        read = encoder(tokenizer())
        ids = read.encode(text)
        assert read.tokens.text_of(ids) == text, (tokenizer, text)
        assert read.tokens.special.isdisjoint(ids)


@given(hostile_bytes)
@settings(max_examples=50)
def test_what_has_no_token_is_left_out(text: bytes) -> None:
    read = encoder(word_piece())
    found = read.tokens.text_of(read.encode(text))
    rest = iter(text)
    assert all(byte in rest for byte in found)  # in this order
    assert read.tokens.text_of(read.encode(text + b" the the")).endswith(b" the the")


def test_usual_texts_have_the_usual_tokens() -> None:
    for tokenizer in (byte_level(), composed(), sentence_piece(), unigram(), byte_target()):
        for text in prompts():
            expected = tokenizer(text, add_special_tokens=False).input_ids
            assert encoder(tokenizer).encode(text.encode()) == expected, (tokenizer, text)


@pytest.mark.parametrize("name", ["smollm2", "qwen"])
def test_real_tokenizers(name: str) -> None:
    if not (RUNS / name / "tokenizer.json").exists():
        pytest.skip(f"runs/{name} is an optional download")
    tokenizer = AutoTokenizer.from_pretrained(RUNS / name)
    read = ByteEncoder(tokenizer)
    for text in (*prompts(), *TEXTS):
        usual = tokenizer(text, add_special_tokens=False).input_ids
        ids = read.encode(text.encode())
        assert read.tokens.text_of(ids) == text.encode()
        assert ids == usual or read.tokens.text_of(usual) != text.encode()  # NFC changes one of the texts
    for text in (*HOSTILE, "<|im_end|>", "<|endoftext|>x"):
        for cut in range(len(text.encode())):
            part = text.encode()[cut:]
            ids = read.encode(part)
            assert read.tokens.text_of(ids) == part and read.tokens.special.isdisjoint(ids)


def test_the_space_before_a_text_is_not_doubled() -> None:
    """The tokenizer itself would put a space before it: with it the tokens are those of the text without it."""
    metaspace = copied(prefixed())
    metaspace.backend_tokenizer.normalizer = normalizers.Sequence([])
    metaspace.backend_tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    spaced_bytes = copied(byte_level())
    spaced_bytes.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    text = "".join(prompts()[:4])
    for tokenizer in (prefixed(), metaspace, spaced_bytes):
        usual = tokenizer(text, add_special_tokens=False).input_ids
        read = ByteEncoder(tokenizer)
        assert read.encode(f" {text}".encode()) == usual
        ids = read.encode(text.encode())
        assert read.tokens.text_of(ids) == text.encode()
        assert ids[-9:] == usual[-9:] and len(ids) <= len(usual) + 2


def test_the_name_of_a_special_token_is_text() -> None:
    """It has the tokens that it would have without the special token."""
    described = json.loads(composed().backend_tokenizer.to_str())
    described["added_tokens"] = []
    text = "And the LORD said<end>And the king said<end>"
    expected = Tokenizer.from_str(json.dumps(described)).encode(text, add_special_tokens=False).ids
    assert encoder(composed()).encode(text.encode()) == expected


def test_a_character_that_the_tokenizer_changes_leaves_distant_tokens_alone() -> None:
    """SentencePiece writes this character for a space, so no text that has it can be tokenized as usual."""
    text = " ".join(prompts()[:8]).encode()
    read = encoder(prefixed())
    usual = read.encode(text)
    for changed in (text + "\u2581".encode(), "\u2581".encode() + text):
        ids = read.encode(changed)
        assert read.tokens.text_of(ids) == changed
        assert len({*usual} - {*ids}) < 5 and len(ids) < len(usual) + 30


def test_an_incomplete_character_is_tokens_too() -> None:
    read = encoder(byte_target())
    for text in (b"a\xe8", b"a\xe8\xaa", b"\xaa\x9ea", b"\xff\xfe", b"\xed\xa0\x80"):
        assert [read.tokens.tokens[each] for each in read.encode(text)] == [bytes([byte]) for byte in text]
    assert encoder(byte_level()).encode("é".encode()[:1]) == [encoder(byte_level()).tokens.by_bytes()[b"\xc3"]]


def test_settings_of_the_tokenizer_do_not_reach_the_copy() -> None:
    text = prompts()[0]
    usual = composed()(text, add_special_tokens=False).input_ids
    tokenizer = copied(composed())
    tokenizer.backend_tokenizer.enable_truncation(2)
    assert ByteEncoder(tokenizer).encode(text.encode()) == usual
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.enable_padding(length=len(usual) + 9)
    assert ByteEncoder(tokenizer).encode(text.encode()) == usual
    assert len(tokenizer.backend_tokenizer.encode(text).ids) == len(usual) + 9
    assert not tokenizer.backend_tokenizer.encode_special_tokens
