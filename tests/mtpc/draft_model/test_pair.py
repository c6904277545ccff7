"""Drafts of pairs against a slow reference, which tokenizes each whole text anew and reads it without a cache."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from mtpc.draft_model.pair import PairPart
from mtpc.draft_model.part import TextPart
from mtpc.draft_model.translation import StringMatch, TokenizerPair
from mtpc.errors import MTPCError
from mtpc.methods.pair import Pair, PairConfig
from tests.support.often import each_of
from tests.support.random_pair import PADDING, TOKENIZERS, load_pair, make_pair, make_text_target, with_beginning
from tests.support.small_tokenizers import HOSTILE, TEXTS, byte_level, sentence_piece

K, SLOTS, CONTEXT, REQUESTS = 4, 3, 64, 5


class SlowReference:
    """Drafts for whole texts; it only remembers where the part of a request that is read begins."""

    def __init__(self, folder: Path, target: Path) -> None:
        self.config: PairConfig = Pair().read_config(folder)
        own = AutoTokenizer.from_pretrained(self.config.model)
        self.model = AutoModelForCausalLM.from_pretrained(self.config.model, dtype=torch.float32).eval()
        self.tokenizers = TokenizerPair.of(own, AutoTokenizer.from_pretrained(target))
        self.beginning: list[int] = own("")["input_ids"]
        self.offsets: dict[int, int] = {}
        self.min_confidence = 0.0

    def own_ids(self, text: list[int]) -> list[int]:
        """The draft model's tokens of a text."""
        known, ids, piece = self.tokenizers.target.tokens.tokens, [], b""
        for token in text:
            letters = known[token] if token < len(known) else None
            if letters is None:
                special = self.tokenizers.special
                ids += [*self.tokenizers.own.encode(piece), *([special[token]] if token in special else [])]
            piece = b"" if letters is None else piece + letters
        return ids + self.tokenizers.own.encode(piece)

    @torch.inference_mode()
    def draft(
        self, key: int, text: list[int], temperature: float, uniforms: Tensor, drawn: list[int]
    ) -> tuple[list[int], list[Tensor]]:
        """At most K tokens, and the distributions [V] of those that are drawn.

        drawn: The tokens that they are compared with: on the border of two of them rounding decides which is drawn.
        """
        ids, tokenizers, own, stated = self.own_ids(text), self.tokenizers, [], []
        if not ids:
            return [], []
        most, confidence = CONTEXT - K - len(self.beginning), 1.0
        if len(ids) - self.offsets.setdefault(key, 0) > most:
            self.offsets[key] = len(ids) - most // 2
        window = ids[self.offsets[key] :]
        window = window if window[:1] == self.beginning else self.beginning + window
        pairs = dict(tokenizers.common.T.tolist())
        writable = [
            bool(token) or number in tokenizers.ends for number, token in enumerate(tokenizers.own.tokens.tokens)
        ]
        for place in range(K):
            logits = self.model(torch.tensor([window + own])).logits[0, -1]
            logits[~torch.tensor(writable + [False] * PADDING)] = -torch.inf
            allowed = torch.full_like(logits, -torch.inf)
            columns = list(pairs) if self.config.translation == "tli" else list(range(len(logits)))
            allowed[columns] = logits[columns]
            token = int(allowed.argmax())
            confidence *= float(logits.softmax(0)[token])
            if self.config.translation == "tli" and temperature > 0:
                probs = (allowed / temperature).softmax(0)
                ends = probs[columns].double().cumsum(0)  # as many uniforms as tokens: the order is part of it
                column = int((ends > uniforms[place] * ends[-1]).nonzero()[0])
                for other, token in enumerate(columns):
                    nearest = uniforms[place].clamp(ends[other] - probs[columns[other]], ends[other])
                    if drawn[place : place + 1] == [pairs[token]] and abs(nearest - uniforms[place]) < 1e-5:
                        column = other
                token = columns[column]
                stated.append(torch.zeros(self.config.vocab_size))
                stated[-1][list(pairs.values())] = probs[columns]
            own.append(token)
            if token in tokenizers.ends or confidence < self.min_confidence:
                break
        if self.config.translation == "tli":
            return [pairs[each] for each in own], stated
        return self.retokenized(text, own)[:K], []

    def retokenized(self, text: list[int], own: list[int]) -> list[int]:
        """The target's tokens of the text that the draft model has written."""
        known, target = self.tokenizers.target.tokens.tokens, self.tokenizers.target
        start = max((place for place, each in enumerate(text) if each >= len(known) or known[each] is None), default=-1)
        committed, written = target.tokens.text_of(text[start + 1 :]), self.tokenizers.own.tokens.text_of(own)
        ids = target.encode(committed + written)
        borders = [place for place in range(len(ids) + 1) if len(target.tokens.text_of(ids[:place])) == len(committed)]
        found = ids[borders[0] :] if borders else target.encode(written)
        return found + [self.tokenizers.ends[each] for each in own[-1:] if each in self.tokenizers.ends]


class Requests:
    """Requests whose texts grow at random: by their drafts and other tokens, special ones and parts of characters."""

    def __init__(self, part: PairPart, tokenizer: Any, seed: int) -> None:
        self.part, self.tokenizer, self.draws = part, tokenizer, random.Random(seed)
        self.texts: dict[int, list[int]] = {}
        self.drafts: dict[int, list[int]] = {}

    def add(self, key: int) -> None:
        """Go on with a request, or begin another one with its key."""
        if key in self.texts and self.draws.random() < 0.07:
            self.part.forget([key, "unknown"])
            del self.texts[key]
            self.drafts.pop(key, None)
        if key in self.texts:
            emitted = [*self.accepted(key), *self.other()]
            self.texts[key] += emitted
        else:
            self.texts[key] = [
                *self.encoded((2 * self.draws.choice(TEXTS))[: self.draws.randint(0, 190)]),
                *self.other(),
            ]
            emitted = self.texts[key][-1:]
        self.part.add(key, self.texts[key].copy, emitted)

    def accepted(self, key: int) -> list[int]:
        """Some of its last draft."""
        draft = self.drafts.get(key, [])
        return draft[: self.draws.randint(0, len(draft))]

    def other(self) -> list[int]:
        """Return the target's own tokens after the accepted ones."""
        if self.draws.random() < 0.7:
            return [self.draws.randrange(self.part.vocab_size)]
        return self.encoded(self.draws.choice(HOSTILE)) or [self.draws.randrange(9)]

    def encoded(self, text: str) -> list[int]:
        """In the target's tokens."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids

    def is_new(self, key: int) -> bool:
        """Whether it has not drafted."""
        return key not in self.drafts


@pytest.fixture(scope="module", params=each_of(TOKENIZERS, tuple(TOKENIZERS)[:3]))
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """Its folder, and the tokenizer of its draft models."""
    tokenizer, draft = TOKENIZERS[request.param]
    return make_text_target(tmp_path_factory.mktemp("pairs") / "target", tokenizer()), draft()


@pytest.mark.parametrize("translation", ["tli", "slem"])
def test_any_schedule_drafts_as_the_reference(target: tuple[Path, Any], tmp_path: Path, translation: str) -> None:
    """Requests are left out, rolled back, slide out of the context, are more than slots, and end."""
    sizes = {"context": CONTEXT, "slots": SLOTS}
    folder = make_pair(tmp_path / "pair", target[0], translation, tokenizer=target[1], **sizes)
    part, reference = load_pair(folder, target[0]), SlowReference(folder, target[0])
    tokenizer = AutoTokenizer.from_pretrained(target[0])
    common = reference.tokenizers.common[1]
    lengths: list[int] = []
    for seed, part.min_confidence in enumerate((0.0, 0.1, 0.3)):
        reference.min_confidence = part.min_confidence
        requests = Requests(part, tokenizer, seed)
        part.forget(range(REQUESTS))
        reference.offsets.clear()
        for step in range(24):
            batch = requests.draws.sample(range(REQUESTS), requests.draws.randint(1, REQUESTS))
            for key in batch:
                known = key in requests.texts
                requests.add(key)
                if known and requests.is_new(key):
                    reference.offsets.pop(key, None)
            temperatures = [0.0 if step % 3 == 0 else requests.draws.choice([0.0, 0.7, 1.0]) for _ in batch]
            noise = torch.rand(len(batch), K, dtype=torch.float64)
            tokens, probs, _ = part.draft(batch, temperatures, [K] * len(batch), noise)
            assert (probs is None) == (not any(temperatures))
            assert probs is None or probs.shape == (len(batch), max(map(len, tokens)), part.vocab_size)
            drafting = [key for key in batch if key in part.slots]
            assert len(drafting) == min(SLOTS, len(batch))
            for row, key in enumerate(batch):
                if key not in drafting:
                    assert tokens[row] == []
                    continue
                requests.drafts[key] = tokens[row]
                expected, stated = reference.draft(key, requests.texts[key], temperatures[row], noise[row], tokens[row])
                assert tokens[row] == expected
                lengths.append(len(expected))
                if probs is None:
                    continue
                rows = probs[row]
                torch.testing.assert_close(rows.sum(1), torch.ones(len(rows)))
                outside = torch.ones(part.vocab_size, dtype=torch.bool).index_fill_(0, common, False)
                for place, each in enumerate(rows):
                    if place < len(stated):
                        torch.testing.assert_close(each, stated[place], atol=1e-5, rtol=1e-4)
                        assert not each[outside].any()
                    else:
                        assert int(each.argmax()) == ([*expected, *[0] * K])[place] and float(each.max()) == 1.0
    assert max(reference.offsets.values()) > 0
    assert {1, 2, K} <= set(lengths) and sum(map(bool, lengths)) > 100


def test_a_request_that_is_asked_for_nothing_lends_its_slot(tmp_path: Path) -> None:
    """As one that prompt lookup drafts for; when it is back it drafts as before."""
    target = make_text_target(tmp_path / "target", byte_level())
    part = load_pair(make_pair(tmp_path / "pair", target, "tli", min_confidence=0.0, slots=1), target)
    for key, text in enumerate(TEXTS[:2]):
        ids = AutoTokenizer.from_pretrained(target).encode(text)
        part.add(key, ids.copy, ids[-1:])
    first, none = part.draft([0, 1], [0.0, 0.0], [2, 2], None).tokens
    assert first and not none  # both draft: one keeps its slot
    other, drafted = part.draft([0, 1], [0.0, 0.0], [0, 2], None).tokens
    assert drafted and not other
    assert part.draft([0, 1], [0.0, 0.0], [2, 0], None).tokens == [first, []]


def test_the_text_of_a_draft_stays_the_draft_models(target: tuple[Path, Any]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(target[0])
    pair, draws = TokenizerPair.of(target[1], tokenizer), random.Random(0)
    for _ in range(200):
        tail = tokenizer.encode(draws.choice(TEXTS)[: draws.randint(0, 30)], add_special_tokens=False)
        draft = StringMatch(pair)
        draft.own = [draws.randrange(len(pair.own.tokens.tokens)) for _ in range(draws.randint(1, 6))]
        tokens, stated = draft.translated(tail, 100)
        assert pair.target.tokens.text_of(tokens) == pair.own.tokens.text_of(draft.own)
        assert stated == []
    for draft.own[:], end in (([mine], theirs) for mine, theirs in pair.ends.items()):
        draft.ended = True
        assert draft.translated(tail, 1) == ([end], [])


def recording(read: Callable[..., Tensor], reads: list[tuple[Any, ...]]) -> Callable[..., Tensor]:
    """Notes the tokens that are read, and where they start."""

    def recorded(slots: Any, *what: Any) -> Tensor:
        reads.append(what)
        return read(slots, *what)

    return recorded


def test_a_beginning_of_text_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the target's text begins with one, and where the first tokens no longer fit."""
    beginning, tokenizer = with_beginning(sentence_piece()), with_beginning(byte_level())
    target = make_text_target(tmp_path / "target", tokenizer)
    words = tokenizer.encode("The quick brown fox", add_special_tokens=False)
    for number, draft in enumerate((beginning, sentence_piece())):
        folder = make_pair(tmp_path / f"pair-{number}", target, "slem", tokenizer=draft, context=CONTEXT)
        part, reads = load_pair(folder, target), []
        bos = [draft.bos_token_id] if number == 0 else []
        monkeypatch.setattr(part.model, "read", recording(part.model.read, reads))
        for key, text in {"plain": words, "begun": [tokenizer.bos_token_id, *words], "long": words * 4}.items():
            part.add(key, text.copy, text[-1:])
            part.draft([key], [0.0], [1], None)
            (((tokens,), starts),) = reads
            assert starts == [0]
            own = part.tokenizers.own.encode(b"The quick brown fox" * (4 if key == "long" else 1))
            most = CONTEXT - 1 - len(bos)
            assert tokens == bos + (own[-(most // 2) :] if len(own) > most else own)
            reads.clear()
        assert len(own) > CONTEXT


def test_nothing_to_read_is_an_empty_draft(tmp_path: Path) -> None:
    """A text of special tokens that the draft model does not have, in a sampled batch too."""
    target = make_text_target(tmp_path / "target", byte_level())
    unknown = len(byte_level())  # a row of padding
    for translation in ("tli", "slem"):
        part = load_pair(make_pair(tmp_path / translation, target, translation, tokenizer=sentence_piece()), target)
        for key in range(2):
            part.add(key, lambda: [unknown], [unknown])
        assert part.draft([0, 1], [0.0, 0.0], [K, K], None).tokens == [[], []]
        tokens, probs, _ = part.draft([0, 1], [0.0, 1.0], [K, K], torch.rand(2, K).double())
        assert tokens == [[], []]
        assert probs is not None and probs.shape == (2, 0, part.vocab_size)


def test_memory_and_contract(tmp_path: Path) -> None:
    target = make_text_target(tmp_path / "target", byte_level())
    part: TextPart = load_pair(make_pair(tmp_path / "pair", target, "tli"), target)
    assert part.memory() > 0
    assert part.vocab_size == len(byte_level()) + PADDING


def test_tokens_that_a_model_cannot_read_or_write(tmp_path: Path) -> None:
    """Tokens were added to a tokenizer, but not to its model."""
    target = make_text_target(tmp_path / "target", byte_level())
    folder = make_pair(tmp_path / "pair", target, "tli", tokenizer=sentence_piece())
    part = load_pair(folder, target)
    for sizes, sentence in (
        ((5, part.vocab_size), "the draft model's tokenizer has 267 tokens, but the model only 5"),
        ((part.model.vocab_size, 9), "the target's tokenizer has 402 tokens, but the model only 9"),
    ):
        with pytest.raises(MTPCError, match=sentence):
            part.tokenizers.check_sizes(*sizes)
