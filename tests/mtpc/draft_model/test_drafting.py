"""Who drafts for a request: the text part, prompt lookup, or nobody where a draft is not worth its time."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mtpc.draft import one_hot
from mtpc.draft_length.cost import StepCost
from mtpc.draft_model.drafting import JoinedProbs, TextDrafting
from mtpc.draft_model.part import TextDraft, TextPart
from mtpc.draw import choose
from mtpc.verify.rejection import verify_rejection
from mtpc.verify.strings import verify_strings
from tests.support.simulated_gpu import simulated_gpu

V, K, OWN = 5, 6, 3
CHEAP = StepCost(plain=((1, 1.0), (4, 1.0)), verifying=((1, 1.0), (64, 1.1)), drafting=((1, 0.1),))
DEAR = StepCost(plain=((1, 1.0), (4, 1.0)), verifying=((1, 1.0), (64, 1.1)), drafting=((1, 50.0),))
REPEATED = [1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2]  # prompt lookup is sure of 3, 4, 1, ...
FRESH = [0, 4, 2]  # nothing is repeated


class Part(TextPart):
    """Draws from a fixed distribution, and may end a draft after any token, by that token."""

    vocab_size = V

    def __init__(self, lazy: bool = False) -> None:
        self.texts: dict[Hashable, list[int]] = {}
        self.asked: list[list[int]] = []
        self.verifies_lazily = lazy

    def add(self, key: Hashable, text: Callable[[], Sequence[int]], emitted: Sequence[int]) -> None:
        self.texts[key] = [*self.texts[key], *emitted] if key in self.texts else list(text())

    def probs(self, text: Sequence[int]) -> Tensor:
        """Its distribution after a text, float32 [V]."""
        return torch.softmax(torch.tensor([float((7 * sum(text[-2:]) + 3 * token) % 5) for token in range(V)]), 0)

    def draft(
        self, keys: Sequence[Hashable], temperatures: Sequence[float], lengths: Sequence[int], noise: Tensor | None
    ) -> TextDraft:
        self.asked.append(list(lengths))
        made: list[list[int]] = [[] for _ in keys]
        rows: list[list[Tensor]] = [[] for _ in keys]
        for row, (key, length) in enumerate(zip(keys, lengths, strict=True)):
            while len(made[row]) < length and made[row][-1:] != [0]:
                probs = self.probs([*self.texts[key], *made[row]])
                place = len(made[row])
                drawn = probs.argmax() if noise is None else choose(probs[None], torch.ones(1), noise[row, place, None])
                made[row].append(int(drawn))
                rows[row].append(probs)
        if not any(temperatures):
            return TextDraft(made, None)
        width = max(map(len, made))
        filled = torch.tensor([draft + [0] * (width - len(draft)) for draft in made]).view(len(made), width)
        probs = one_hot(filled, V)
        for row, each in enumerate(rows):
            for place, stated in enumerate(each):
                probs[row, place] = stated
        if self.verifies_lazily:
            return TextDraft(made, None, Dense(probs, filled))
        return TextDraft(made, probs)

    def forget(self, keys: Iterable[Hashable]) -> None:
        for key in keys:
            self.texts.pop(key, None)

    def dummy_draft(self, requests: int, num_drafts: int) -> None:
        raise AssertionError("only engines time it")

    def memory(self) -> int:
        return 0


class Dense:
    """Looks single probabilities up."""

    def __init__(self, probs: Tensor, tokens: Tensor) -> None:
        self.probs, self.stated = probs, probs.gather(2, tokens[:, :, None])[:, :, 0].double()

    def of(self, rows: Tensor, positions: Tensor, tokens: Tensor) -> Tensor:
        return self.probs[rows, positions, tokens].double()


def drafting(part: TextPart, cost: StepCost | None, copies: bool = True, ragged: bool = True) -> TextDrafting:
    return TextDrafting.of(part, Path("none"), OWN, K, copies=copies, cost=cost, ragged=ragged)


def add(made: TextDrafting, **texts: list[int]) -> list[str]:
    for key, text in texts.items():
        made.add(key, text.copy, text[-1:])
    return list(texts)


def test_a_request_that_repeats_its_text_costs_no_drafting() -> None:
    for ragged in (True, False):
        for cost in (CHEAP, None):
            part = Part()
            made = drafting(part, cost, ragged=ragged)
            keys = add(made, fresh=FRESH, repeated=REPEATED)
            tokens = made.draft(keys, [0.0, 0.0], K, None, [False, False]).tokens
            ((own, none),) = part.asked
            assert 0 < own <= OWN and none == 0
            assert tokens[0] == part.draft(["fresh"], [0.0], [own], None).tokens[0][: len(tokens[0])]
            assert len(tokens[1]) > OWN or ragged is False
            assert tokens[1] == [3, 4, 1, 2, 3, 4][: len(tokens[1])] and tokens[1]


def test_without_prompt_lookup_every_token_is_the_parts() -> None:
    part = Part()
    made = drafting(part, CHEAP, copies=False)
    keys = add(made, repeated=REPEATED)
    tokens = made.draft(keys, [0.0], K, None, [False]).tokens[0]
    ((length,),) = part.asked
    assert 1 < length <= K and tokens == part.draft(keys, [0.0], [length], None).tokens[0][: len(tokens)]
    assert not made._new  # a text that nobody reads again


def test_nothing_is_drafted_where_it_takes_too_long() -> None:
    for ragged in (True, False):
        part = Part()
        made = drafting(part, DEAR, ragged=ragged)
        keys = add(made, fresh=FRESH, repeated=REPEATED)
        tokens = made.draft(keys, [0.0, 0.0], K, None, [False, False]).tokens
        assert part.asked == [] and tokens[0] == [] and tokens[1][:1] == [3]
        sampled = made.draft(keys, [1.0, 1.0], K, torch.rand(2, K).double(), [False, False])
        assert sampled.probs is not None and sampled.probs.sum(2).allclose(torch.ones(2, len(sampled.tokens[1])))
    plain = Part()
    assert drafting(plain, None, copies=False).lengths is None
    keys = add(made := TextDrafting(plain, None, ragged=True), fresh=FRESH)
    assert made.draft(keys, [0.0], K, None, [False]).tokens and plain.asked == [[K]]


def test_a_draft_that_agrees_with_prompt_lookup_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [4, 0, 3, 2, 4, 0]
    for ragged in (True, False):
        part = Part()
        made = drafting(part, None, ragged=ragged)
        keys = add(made, weak=[1, 2, 4, 0, 3, 2])  # a match of one token: the part drafts
        monkeypatch.setattr(part, "probs", lambda text: torch.eye(V)[expected[len(text) - 6]])
        tokens = made.draft(keys, [0.0], K, None, [False]).tokens[0]
        assert part.asked == [[OWN]]
        assert tokens == expected


def test_its_text_is_that_of_the_request() -> None:
    """Of requests that are left out of steps, come back, end, and come again under the same key."""
    draws = random.Random(3)
    part = Part()
    made = drafting(part, CHEAP)
    texts: dict[str, list[int]] = {}
    for step in range(200):
        batch = draws.sample("abcdef", draws.randint(1, 5))
        for key in batch:
            new = draws.choices(range(V), k=draws.randint(1, K + 1))
            texts[key] = [*texts.get(key, draws.choices(range(V), k=9)), *new]
            made.add(key, texts[key].copy, new)
        if step % 5 == 0:
            continue  # the engine does not draft
        sampled = step % 3 == 0
        noise = torch.rand(len(batch), K, dtype=torch.float64) if sampled else None
        made.draft(batch, [float(sampled)] * len(batch), K, noise, [False] * len(batch))
        for key in batch:
            assert made.lengths.requests[key].copy.text == texts[key]  # type: ignore[union-attr]
        gone = draws.sample("abcdefx", 1)
        made.forget(gone)
        texts.pop(gone[0], None)
    made.forget("abcdef")
    assert not (made._new or made._emitted or made.lengths.requests or part.texts)  # type: ignore[union-attr]


def test_a_request_with_a_seed_drafts_the_same_in_any_batch() -> None:
    for temperature in (0.0, 1.0):
        noise = torch.rand(3, K, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
        found = set()
        for others in ({}, {"b": FRESH}, {"b": REPEATED, "c": FRESH}):
            made = drafting(Part(), CHEAP)
            keys = add(made, a=[2, 1, 2], **others)
            draft = made.draft(keys, [temperature] * len(keys), K, noise[: len(keys)], [True] * len(keys))
            found.add(tuple(draft.tokens[0]))
        assert len(found) == 1


def emitted(draft: TextDraft, target: Tensor, generator: torch.Generator) -> Any:
    """What is emitted first for each request by the rule that fits the draft."""
    rows, width = len(draft.tokens), max(map(len, draft.tokens))
    tokens = torch.tensor([each + [0] * (width - len(each)) for each in draft.tokens]).view(rows, width)
    p = target.expand(rows, width + 1, V)
    uniforms = torch.rand(rows, width, generator=generator, dtype=torch.float64)
    if draft.lazy is not None:
        last = torch.rand(rows, V, generator=generator, dtype=torch.float64)
        return verify_strings(tokens, draft.lazy.stated, draft.lazy, p, uniforms, last)
    assert draft.probs is not None
    last = torch.rand(rows, generator=generator, dtype=torch.float64)
    return verify_rejection(tokens, draft.probs, p, uniforms, last)


def test_lazy_distributions_are_found_from_a_gpu() -> None:
    """Engines verify where the target is; the part drafts on the host."""
    probs = torch.tensor([[[0.5, 0.25, 0.25, 0.0, 0.0]], [[0.2] * V]])
    joined = JoinedProbs(Dense(probs, torch.tensor([[1], [2]])), [[1, 3], [4]], [1, 0])
    assert joined.stated.tolist() == [[0.25, 1.0], [1.0, 1.0]]
    for positions, tokens, expected in (
        ([0, 0], [2, 4], [0.25, 1.0]),
        ([0, 0], [0, 2], [0.5, 0.0]),
        ([1, 1], [3, 0], [1.0, 1.0]),
        ([1, 1], [1, 4], [0.0, 0.0]),
    ):
        with simulated_gpu() as device:
            given = [torch.tensor(each, device=device) for each in ([0, 1], positions, tokens)]
            assert joined.of(*given).tolist() == expected


def test_sampled_drafts_keep_the_targets_distribution() -> None:
    """With dense and lazy distributions, in a batch where one request copies; the control states a wrong q."""
    target, generator = torch.tensor([0.1, 0.3, 0.2, 0.15, 0.25]), torch.Generator().manual_seed(6)
    rounds, texts = 800, {"fresh": FRESH, "repeated": REPEATED, "fresh too": FRESH, "repeated too": REPEATED}
    for lazy, ragged, misstated in (
        (False, True, False), (False, False, False), (True, True, False), (False, True, True)
    ):  # fmt: skip
        counts = torch.zeros(2, V)
        for _ in range(rounds):
            made = drafting(Part(lazy), CHEAP, ragged=ragged)
            keys, noise = add(made, **texts), torch.rand(4, K, dtype=torch.float64, generator=generator)
            draft = made.draft(keys, [1.0] * 4, K, noise, [False] * 4)
            assert all(draft.tokens)
            if misstated:
                assert draft.probs is not None
                draft = draft._replace(probs=torch.full_like(draft.probs, 1 / V))
            for row, token in enumerate(emitted(draft, target, generator).tokens[:, 0].tolist()):
                counts[row % 2, token] += 1
        expected = 2 * rounds * target
        for observed in counts:
            statistic = ((observed - expected) ** 2 / expected).sum()
            assert (statistic > 30) == misstated  # 18.5: one in a thousand, of 4 degrees of freedom


def test_a_predicted_output_takes_the_place_of_the_part() -> None:
    """It is given once, with the text, of a request that may not draft at once."""
    for ragged in (True, False):
        part = Part()
        made = drafting(part, CHEAP, ragged=ragged)
        made.add("a", lambda: [*FRESH, 1], [1], lambda: [*FRESH, 1, 4, 3, 0, 2, 2, 1])
        made.add("a", list, [4, 3], list)
        tokens = made.draft(["a"], [0.0], K, None, [False]).tokens[0]
        assert len(tokens) > 2 and tokens == [0, 2, 2, 1][: len(tokens)] and not part.asked
        made.forget(["a"])
        assert not made._new
