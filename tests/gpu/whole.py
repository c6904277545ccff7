"""Whole drafts of every draft method, both parts, as functions of buffers: what a graph is to hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from mtpc.draft import Draft, Mode, TreeDraft
from mtpc.lab.evaluation.reference import ReferenceDrafter
from mtpc.methods.drafter import Drafter
from mtpc.noise import counter_uniforms
from mtpc.parallel.borrow import borrow_nodes
from mtpc.prompt_lookup.mixture import Copied
from mtpc.target_head.shared import SharedHead
from mtpc.target_head.union import UnionLogits
from mtpc.vocabulary.ranking import Ranking, Rankings
from mtpc.vocabulary.vocabularies import DraftVocabularies, VocabularySettings
from tests.support.random_hybrid import forget_method, register_method
from tests.support.tiny_methods import EXAMPLES, WITH_PARTS, tiny_target
from tests.support.tiny_models import VOCAB, make_fastmtp, make_target

Drafts = Draft | TreeDraft
TEXT, DRAFTS = 5, 4  # tokens of each text, and at most of a draft
NODES, CHILDREN, BORROWED = 6, 2, 2
LANGUAGES = {"low": Ranking(tuple(range(9))), "high": Ranking(tuple(range(15, 6, -1)))}


class Static(ReferenceDrafter):
    """Which mode a batch is drafted in is known without asking the device."""

    def _mode(self, temperature: Tensor | None) -> Mode:
        return "greedy" if temperature is None else "mixed"


class OwnVocabularies(SharedHead):
    """The target's head, through which each request drafts from its own vocabulary; numbers: int64 [B], of these."""

    def __init__(self, embedding: Tensor, rows: Tensor, vocabularies: DraftVocabularies) -> None:
        super().__init__(embedding, rows)
        self.union, self.vocabularies = UnionLogits(vocabularies, rows), vocabularies
        self.numbers = torch.zeros(0, dtype=torch.int64, device=rows.device)

    def logits(self, states: Tensor) -> Tensor:
        """Of as many rows for each request."""
        numbers = self.numbers.repeat_interleave(len(states) // len(self.numbers))
        return self.union(states, numbers).float()


class Batch(NamedTuple):
    """What is known of B requests, in buffers.

    hidden: [B, m, d].  following: int64 [B, m].  temperature: float32 [B], 0 for some.  seeds, numbers: int64 [B].
    copied: int64 [B, K].  chances: float32 [B, K].
    """

    hidden: Tensor
    following: Tensor
    temperature: Tensor
    seeds: Tensor
    numbers: Tensor
    copied: Tensor
    chances: Tensor

    @classmethod
    def random(cls, rows: int, seed: int, hidden: int, vocab: int, device: torch.device) -> Batch:
        """Other requests for every seed."""
        generator = torch.Generator().manual_seed(100 * rows + seed)
        temperature = torch.tensor([1.0, 0.0, 0.6])[(torch.arange(rows) + seed) % 3]
        made = cls(
            torch.randn(rows, TEXT, hidden, generator=generator),
            torch.randint(vocab, (rows, TEXT), generator=generator),
            temperature,
            torch.randint(1 << 40, (rows,), generator=generator),
            torch.randint(3, (rows,), generator=generator),
            torch.randint(vocab, (rows, DRAFTS), generator=generator),
            torch.rand(rows, DRAFTS, generator=generator) * 0.9 * ((torch.arange(rows) + seed) % 2)[:, None],
        )
        return cls(*(tensor.to(device) for tensor in made))

    def take(self, other: Batch) -> None:
        """Into these buffers."""
        for buffer, value in zip(self, other, strict=True):
            buffer.copy_(value)


class Example(NamedTuple):
    """A drafter, and the head that its autoregressive part drafts through."""

    drafter: Drafter
    head: SharedHead

    @property
    def sizes(self) -> tuple[int, int]:
        """D and V."""
        return self.drafter.config.hidden_size, self.head.vocab_size

    def chain(self, batch: Batch, greedy: bool = False, copies: bool = False, drafts: int = DRAFTS) -> Draft:
        """As many tokens as there can be, ``drafts`` at most."""
        drafts = min(drafts, self.drafter.config.max_drafts)
        copied = Copied(batch.copied, batch.chances).first(drafts) if copies else None
        session = self._session(batch)
        if greedy:
            return session.draft(batch.hidden, batch.following, drafts, copied=copied)
        noise = counter_uniforms(batch.seeds, batch.seeds, drafts)
        return session.draft(batch.hidden, batch.following, drafts, batch.temperature, noise, copied)

    def tree(self, batch: Batch) -> TreeDraft:
        """Some of its nodes are borrowed."""
        grown = self._session(batch).draft_tree(batch.hidden, batch.following, NODES, batch.temperature, CHILDREN)
        return borrow_nodes(grown, BORROWED)

    def _session(self, batch: Batch) -> ReferenceDrafter:
        if isinstance(self.head, OwnVocabularies):
            self.head.numbers = batch.numbers
        return Static(self.drafter, self.head)

    def ways(self) -> dict[str, Callable[[Batch], Drafts]]:
        """To draft, by their names."""
        chains: dict[str, Callable[[Batch], Drafts]] = {
            "chain": self.chain,
            "greedy": lambda batch: self.chain(batch, greedy=True),
            "copying": lambda batch: self.chain(batch, copies=True),
        }
        parallel = self.drafter.parallel
        drafts_trees = self.drafter.config.own_drafts and (parallel is None or parallel.drafts_trees)
        return chains | {"tree": self.tree} if drafts_trees else chains


def examples(device: torch.device) -> Iterator[tuple[str, Example]]:
    """Of every draft method, and FastMTP by language."""
    register_method()
    for name in (*WITH_PARTS, "copying"):
        head = SharedHead.of(tiny_target("qwen2" if "qwen2" in name else "llama").to(device))
        yield name, Example(EXAMPLES[name]().to(device), head)
    forget_method()
    target = make_target("llama").to(device)
    whole, rankings = SharedHead.of(target), Rankings(VOCAB, LANGUAGES)
    head = OwnVocabularies(whole.embedding, whole.rows, DraftVocabularies(rankings, VocabularySettings(size=7)))
    yield "fastmtp, by language", Example(make_fastmtp(target, DRAFTS).to(device), head)


def differing(found: Drafts, expected: Drafts) -> float:
    """The share of tokens and parents that differ; what is stated may differ by rounding only, where tokens do not."""
    pairs = list(zip(found, expected, strict=True))
    places = [(a != b).float() for a, b in pairs if a is not None and b is not None and not a.is_floating_point()]
    stated = [(a, b) for a, b in pairs if a is not None and b is not None and a.is_floating_point()]
    if not any(bool(place.any()) for place in places):
        for a, b in stated:
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-3)
    return float(torch.stack([place.mean() for place in places]).mean())
