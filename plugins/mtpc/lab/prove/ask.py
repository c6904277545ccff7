"""What a server is asked, and what it said: all that is to be known of it, so that it need not run any more."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple, Self

from pydantic import Field, model_validator

from mtpc.files.config_model import Strict
from mtpc.lab.prove.client import Client
from mtpc.lab.prove.dialects import Request, Text
from mtpc.lab.prove.plan import GREEDY, Plan, Sampling
from mtpc.lab.servers.draft_counters import DraftCounters

SHORTEST = 8  # prompts that sampled texts go on from; all others are for greedy texts
BEGINNINGS = 2  # of these that a sampling's beginnings go on from
TOGETHER = 20  # completions that one request asks for
ALONE = (1, 2, 3, 7, 8, 9, 40)  # tokens of greedy texts that are completed with no other beside them
T1 = Sampling()


class Series(NamedTuple):
    """Completions of one prompt, by its number, that are wanted."""

    prompt: int
    tokens: int
    sampling: Sampling = GREEDY
    times: int = 1

    def requests(self, prompts: Sequence[Text]) -> Iterator[Request]:
        """For all of them."""
        for done in range(0, self.times, TOGETHER):
            yield Request(prompts[self.prompt], self.tokens, self.sampling, min(TOGETHER, self.times - done))


class Texts(Strict):
    """What was said in a series."""

    prompt: int
    sampling: Sampling
    texts: Annotated[tuple[Text, ...], Field(min_length=1)]


def shortest(prompts: Sequence[Text]) -> list[int]:
    """The numbers of the prompts that sampled texts go on from."""
    return sorted(range(len(prompts)), key=lambda number: len(prompts[number]))[:SHORTEST]


def endings(plan: Plan, prompts: Sequence[Text]) -> tuple[Text, ...]:
    """The last tokens of each prompt, which sampled texts go on from: to read whole ones would be most of the work."""
    return tuple(prompt[-plan.context :] for prompt in prompts)


def mixed(plan: Plan, prompts: Sequence[Text]) -> tuple[list[Series], list[Series], list[Series]]:
    """What is asked all at once: greedy texts, beginnings and whole texts."""
    short = shortest(prompts)
    begun, told = [], []
    for number, sampling in enumerate(plan.samplings):
        chosen = dict.fromkeys(short[(BEGINNINGS * number + i) % len(short)] for i in range(BEGINNINGS))
        begun += [Series(prompt, plan.first, sampling, -(-plan.samples // len(chosen))) for prompt in chosen]
        told += [Series(prompt, plan.length, sampling, -(-plan.texts // len(short))) for prompt in short]
    return [Series(prompt, plan.greedy) for prompt in range(len(prompts))], begun, told


def lonely(plan: Plan, prompts: Sequence[Text]) -> tuple[list[Series], list[Request]]:
    """What is asked one after the other: greedy texts, then one request again and again, without seeds and with."""
    series = [Series(i % len(prompts), min(tokens, plan.greedy)) for i, tokens in enumerate(ALONE)]
    request = Request(prompts[shortest(prompts)[0]], plan.length, T1)
    seeds = [plan.seed, *range(plan.seed, plan.seed + plan.repeats)]
    return series, [request] * plan.repeats + [request._replace(seed=seed) for seed in seeds]


class Said(Strict):
    """What a server said.

    alone, crowd: greedy texts, with none beside them and among sampled ones.  begun, told: beginnings, and whole texts
    that were sampled.  repeated: one request again and again; seeded: with a seed each, the first two with the same.
    """

    engine: str
    url: str
    plan: Plan
    prompts: Annotated[tuple[Text, ...], Field(min_length=1)]
    alone: tuple[Texts, ...]
    crowd: tuple[Texts, ...]
    begun: tuple[Texts, ...]
    told: tuple[Texts, ...]
    repeated: Texts
    seeded: Texts
    drafts: DraftCounters

    @model_validator(mode="after")
    def _is_what_was_asked(self) -> Self:
        series, again = lonely(self.plan, self.prompts)
        wanted = [*series, *(one for kind in mixed(self.plan, self.prompts) for one in kind)]
        found = [*self.alone, *self.crowd, *self.begun, *self.told]
        if list(map(_series, found)) != wanted or len(self.repeated.texts + self.seeded.texts) != len(again):
            raise ValueError("the texts are not those that the plan asks for")
        return self

    @property
    def endings(self) -> tuple[Text, ...]:
        """What beginnings and whole texts go on from, by the number of the prompt."""
        return endings(self.plan, self.prompts)

    @property
    def number(self) -> int:
        """Of tokens."""
        series = (*self.alone, *self.crowd, *self.begun, *self.told, self.repeated, self.seeded)
        return sum(len(text) for one in series for text in one.texts)


def number_of_requests(plan: Plan, prompts: Sequence[Text]) -> int:
    """Of all that `ask` asks."""
    series, again = lonely(plan, prompts)
    crowd = [request for kind in mixed(plan, prompts) for one in kind for request in one.requests(prompts)]
    return len(series) + len(again) + len(crowd)


def ask(client: Client, plan: Plan, prompts: tuple[Text, ...]) -> Said:
    """Ask a server everything: first some alone, then greedy and sampled requests of all kinds in one crowd.

    Errors: `MTPCError` where it refuses a request, breaks off or answers something else.
    """
    before = client.counters()
    series, again = lonely(plan, prompts)
    one_by_one = client.ask([*(next(one.requests(prompts)) for one in series), *again], together=1)
    repeated = [text for (text,) in one_by_one.texts[len(series) :]]

    kinds = mixed(plan, prompts)
    wanted = [one for kind in kinds for one in kind]
    ends = endings(plan, prompts)
    crowd = [
        (i, request)
        for i, one in enumerate(wanted)
        for request in one.requests(prompts if one.sampling == GREEDY else ends)
    ]
    random.Random(plan.seed).shuffle(crowd)  # noqa: S311 (an order, no secret)
    together = client.ask([request for _, request in crowd])
    found: list[list[Text]] = [[] for _ in wanted]
    for (i, _), completed in zip(crowd, together.texts, strict=True):
        found[i] += completed
    said = map(_said, wanted, found)
    greedy, begun, told = (tuple(next(said) for _ in kind) for kind in kinds)
    of_repeated = Series(shortest(prompts)[0], plan.length, T1)
    return Said(
        engine=client.dialect.name,
        url=client.url,
        plan=plan,
        prompts=prompts,
        alone=tuple(map(_said, series, one_by_one.texts)),
        crowd=greedy,
        begun=begun,
        told=told,
        repeated=_said(of_repeated, repeated[: plan.repeats]),
        seeded=_said(of_repeated, repeated[plan.repeats :]),
        drafts=one_by_one.drafts + together.drafts + client.counters().since(before),
    )


def _series(said: Texts) -> Series:
    """What was asked for it."""
    return Series(said.prompt, len(said.texts[0]), said.sampling, len(said.texts))


def _said(series: Series, texts: Sequence[Text]) -> Texts:
    return Texts(prompt=series.prompt, sampling=series.sampling, texts=tuple(texts))
