"""One request's text in the tokens of two tokenizers: after any steps the same bytes, at a cost without the context."""

from __future__ import annotations

import random
from functools import cache
from itertools import pairwise
from operator import eq
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer

from mtpc.draft_model.alignment import LONGEST_TAIL, AlignedText, continuation
from mtpc.draft_model.encoder import ByteEncoder
from small_tokenizers import (
    COMPLETE,
    HOSTILE,
    TEXTS,
    byte_level,
    byte_target,
    composed,
    finished,
    prefixed,
    prompts,
    sentence_piece,
    unigram,
    word_piece,
)

RUNS = Path(__file__).parents[3] / "runs"
CHINESE = (
    "在我的后园，可以看见墙外有两株树，一株是枣树，还有一株也是枣树。这上面的夜的天空，奇怪而高，我生平没有见过" * 9
)
PROMPTS = " ".join(prompts()[::4])  # prose and code
DOCUMENTS = (PROMPTS, *TEXTS, CHINESE, "👩‍👩‍👧‍👦🏳️‍🌈e\u0301" * 40, "x" * 900, "\n".join(prompts()[:9]) + " " * 600)


@cache
def encoder(tokenizer: Any) -> ByteEncoder:
    return ByteEncoder(tokenizer)


@cache
def encoders() -> tuple[ByteEncoder, ...]:
    """Of the small tokenizers, and of the real ones that are here."""
    real = [RUNS / name for name in ("smollm2", "qwen") if (RUNS / name / "tokenizer.json").exists()]
    return (
        *(encoder(each()) for each in COMPLETE),
        *(ByteEncoder(AutoTokenizer.from_pretrained(each)) for each in real),
    )


class CountingEncoder(ByteEncoder):
    """Counts the bytes that are tokenized."""

    read = 0

    def encode(self, text: bytes) -> list[int]:
        self.read += len(text)
        return super().encode(text)


def steps(ids: list[int], draws: random.Random) -> list[list[int]]:
    """Split tokens into steps of 1 to 8."""
    borders = [0]
    while borders[-1] < len(ids):
        borders.append(borders[-1] + draws.randint(1, 8))
    return [ids[start:end] for start, end in pairwise(borders)]


def spans(read: ByteEncoder, ids: list[int]) -> set[tuple[int, int]]:
    """Where each token begins in the text, and which it is."""
    found, size = set(), 0
    for each in ids:
        found.add((size, each))
        size += len(read.tokens.tokens[each] or b"")
    return found


def extend(text: AlignedText, tokens: list[int]) -> None:
    """Add tokens, and assert that exactly the returned number of tokens is unchanged."""
    before = list(text.ids)
    same = text.extend(tokens)
    assert text.ids[:same] == before[:same]
    assert same == len(before) or before[same : same + 1] != text.ids[same : same + 1]


@given(st.data())
@settings(max_examples=150)
def test_after_any_steps_the_text_is_that_of_the_target(data: st.DataObject) -> None:
    """Of any tokens, also such as no tokenizer writes; special ones are borders."""
    pieces = st.one_of(st.sampled_from([each.encode() for each in (*HOSTILE, *TEXTS)]), st.binary(max_size=9))
    for target in map(encoder, (byte_level(), sentence_piece(), byte_target())):
        drafter = encoder(data.draw(st.sampled_from(COMPLETE))())
        (mapped, *_) = drafter.tokens.special
        special = dict.fromkeys(target.tokens.special, mapped)
        text = AlignedText(target.tokens, drafter, special)
        written: list[int] = []
        for step in data.draw(st.lists(st.one_of(pieces, st.lists(st.integers(0, 420), max_size=8)), max_size=8)):
            tokens = target.encode(step) if isinstance(step, bytes) else step
            extend(text, tokens)
            written += tokens
            known = [each for each in written if each < len(target.tokens.tokens)]
            assert drafter.tokens.text_of(text.ids) == target.tokens.text_of(known)
            assert text.ids.count(mapped) == sum(each in special for each in written)


def test_special_tokens_are_borders() -> None:
    target, drafter = encoder(byte_level()), encoder(sentence_piece())
    (end,), (mapped,) = target.tokens.special, drafter.tokens.special
    t, he, the = (drafter.encode(each) for each in (b"t", b"he", b"the"))
    text = AlignedText(target.tokens, drafter, {end: mapped})
    extend(text, [end, *target.encode(b"t"), end, *target.encode(b"he")])
    assert text.ids == [mapped, *t, mapped, *he]
    unmapped = AlignedText(target.tokens, drafter, {})
    extend(unmapped, [*target.encode(b"t"), end, *target.encode(b"he"), 10**6])
    extend(unmapped, [-2])
    assert unmapped.ids == [*t, *he] != the
    assert text.tail == target.encode(b"he") and not unmapped.tail


def test_new_text_joins_the_last_tokens() -> None:
    target, drafter = encoder(byte_target()), encoder(sentence_piece())
    text = AlignedText(target.tokens, drafter, {})
    assert text.extend(target.encode(b"A t")) == 0
    a, space, t = text.ids
    assert text.extend(target.encode(b"h")) == 2  # " t" has become " th"
    assert text.extend(target.encode(b"e")) == 1  # and " the" is one token
    assert text.ids == [a, *drafter.encode(b" the")]
    assert text.extend([]) == 2
    assert {space, t}.isdisjoint(text.ids)


def test_an_incomplete_character_is_replaced_when_it_is_complete() -> None:
    target = encoder(byte_target())
    for drafter in map(encoder, (sentence_piece(), composed())):
        text = AlignedText(target.tokens, drafter, {})
        first, second, third = ([each] for each in target.encode("語".encode()))
        for step, expected in ((first, b"\xe8"), (second, b"\xe8\xaa"), (third, "語".encode())):
            extend(text, step)
            assert text.ids == drafter.encode(expected)


def test_tokens_are_those_of_the_whole_text() -> None:
    """At 99.5% of the tokens of each tokenizer, on prose, code and texts without spaces."""
    draws = random.Random(0)
    for target in map(encoder, (byte_level(), prefixed(), byte_target())):
        for drafter in encoders():
            same = total = 0
            for document in DOCUMENTS:
                ids = target.encode(document.encode())
                text = AlignedText(target.tokens, drafter, {})
                for step in steps(ids, draws):
                    text.extend(step)
                whole = drafter.encode(document.encode())
                same += len(spans(drafter, text.ids) & spans(drafter, whole))
                total += len(whole)
            assert same / total >= 0.995, (same, total)


def test_the_cost_of_a_step_does_not_grow_with_the_text() -> None:
    """At a context of 30,000 tokens as at one of none; also where bytes are left out, or no space is a border."""
    draws = random.Random(0)
    target = encoder(byte_level())
    for tokenizer in (composed(), unigram(), byte_target(), word_piece()):
        drafter = CountingEncoder(tokenizer)
        for document in (PROMPTS, CHINESE, "x" * 999, "\x80", "<tool>"):
            ids = target.encode(document.encode())
            ids = (ids * (1 + 31_000 // len(ids)))[:31_000]
            text = AlignedText(target.tokens, drafter, {})
            text.extend(ids[:30_000])
            for step in steps(ids[30_000:], draws):
                drafter.read = 0
                text.extend(step)
                added = len(target.tokens.text_of(step))
                assert drafter.read <= 2 * LONGEST_TAIL + added, (tokenizer, document[:9], drafter.read)
                assert len(target.tokens.text_of(text.tail)) <= 2 * LONGEST_TAIL


@given(st.data())
@settings(max_examples=150)
def test_a_continuation_has_the_bytes_of_the_draft(data: st.DataObject) -> None:
    pieces = st.one_of(st.sampled_from([each.encode() for each in (*HOSTILE, *TEXTS)]), st.binary(max_size=9))
    for tokenizer in COMPLETE:
        target = encoder(tokenizer())
        draft = data.draw(pieces)
        tail = data.draw(st.lists(st.integers(0, len(target.tokens.tokens) - 1), max_size=8))
        assert target.tokens.text_of(continuation(target, tail, draft)) == draft
        assert target.tokens.text_of(continuation(target, target.encode(draft), draft)) == draft


def test_a_continuation_is_what_the_target_would_write() -> None:
    """Of texts as the target tokenizes them: 99% of the tokens but the last, which may join what follows."""
    draws = random.Random(0)
    for target in encoders():
        same = total = 0
        for document in (PROMPTS, TEXTS[0], TEXTS[2], CHINESE):
            ids = target.encode(document.encode())
            text = AlignedText(target.tokens, encoder(byte_target()), {})
            start = 0
            for step in steps(ids, draws):
                extend(text, step)
                start += len(step)
                expected = ids[start : start + 6]
                found = continuation(target, text.tail, target.tokens.text_of(expected))
                same += sum(map(eq, found[:-1], expected))
                total += len(found[:-1])
        assert same / total >= 0.99, (same, total)


def test_a_draft_that_would_change_the_last_token_stands_alone() -> None:
    target = encoder(sentence_piece())
    assert continuation(target, target.encode(b"A t"), b"he A") == target.encode(b"he A") != target.encode(b"the A")[1:]
    split = [*target.encode(b"t"), *target.encode(b"he")]  # which no tokenizer writes; the border after them stays
    assert continuation(target, split, b" the") == target.encode(b" the")
    assert len(continuation(target, split, b" the")) == 1


def test_words_are_split_from_the_border_before_them() -> None:
    """Digits by threes, as Llama 3 has them: those of the draft alone would be split at other places."""
    vocabulary = {text: number for number, text in enumerate([*"123456", "34", "56"])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [("3", "4"), ("5", "6")]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r"\d{1,3}"), "isolated"), pre_tokenizers.ByteLevel(use_regex=False)]
    )
    target = ByteEncoder(finished(tokenizer))
    found = continuation(target, target.encode(b"12"), b"3456")
    assert [target.tokens.tokens[each] for each in found] == [b"3", b"4", b"56"]
    assert [target.tokens.tokens[each] for each in target.encode(b"3456")] == [b"34", b"5", b"6"]
