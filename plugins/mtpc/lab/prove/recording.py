"""All requests of `mtpc prove` to a server and their outputs, so that the server need not run during the comparison."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple, Self

from pydantic import Field, model_validator

from mtpc.files.config_model import Strict
from mtpc.lab.prove.client import Client
from mtpc.lab.prove.engine_api import CompletionRequest, TokenIds
from mtpc.lab.prove.plan import GREEDY, ProvePlan, SamplingSetting
from mtpc.lab.servers.draft_counters import DraftCounters

SAMPLED_PROMPTS = 8  # shortest prompts, which sampled outputs continue; greedy outputs continue all prompts
OPENING_PROMPTS = 2  # of these, for the openings of each sampling setting
MAX_COMPLETIONS = 20  # completions per request
SEQUENTIAL_LENGTHS = (1, 2, 3, 7, 8, 9, 40)  # tokens of the greedy outputs that are generated at batch size 1
TEMPERATURE_ONE = SamplingSetting()


class CompletionSeries(NamedTuple):
    """Several completions of one prompt to request.

    Attributes:
        prompt: Index of the prompt.
        tokens: Tokens of each completion.
        sampling: Sampling parameters.
        times: Number of completions.
    """

    prompt: int
    tokens: int
    sampling: SamplingSetting = GREEDY
    times: int = 1

    def requests(self, prompts: Sequence[TokenIds]) -> Iterator[CompletionRequest]:
        """Yield the requests of the series, of at most `MAX_COMPLETIONS` completions each."""
        for done in range(0, self.times, MAX_COMPLETIONS):
            times = min(MAX_COMPLETIONS, self.times - done)
            yield CompletionRequest(prompts[self.prompt], self.tokens, self.sampling, times)


class CompletedSeries(Strict):
    """The outputs of a `CompletionSeries`.

    Attributes:
        prompt: Index of the prompt.
        sampling: Sampling parameters.
        texts: The outputs.
    """

    prompt: int
    sampling: SamplingSetting
    texts: Annotated[tuple[TokenIds, ...], Field(min_length=1)]


def sampled_prompts(prompts: Sequence[TokenIds]) -> list[int]:
    """Return the indices of the prompts that sampled outputs continue: the shortest ones."""
    return sorted(range(len(prompts)), key=lambda number: len(prompts[number]))[:SAMPLED_PROMPTS]


def prompt_endings(plan: ProvePlan, prompts: Sequence[TokenIds]) -> tuple[TokenIds, ...]:
    """Return the last tokens of each prompt, which sampled outputs continue: whole prompts would dominate the cost."""
    return tuple(prompt[-plan.context :] for prompt in prompts)


def concurrent_series(
    plan: ProvePlan, prompts: Sequence[TokenIds]
) -> tuple[list[CompletionSeries], list[CompletionSeries], list[CompletionSeries]]:
    """Return what is requested concurrently: greedy outputs, sampled openings and longer sampled outputs."""
    short = sampled_prompts(prompts)
    openings, outputs = [], []
    for number, sampling in enumerate(plan.samplings):
        chosen = dict.fromkeys(short[(OPENING_PROMPTS * number + i) % len(short)] for i in range(OPENING_PROMPTS))
        times = -(-plan.samples // len(chosen))
        openings += [CompletionSeries(prompt, plan.first, sampling, times) for prompt in chosen]
        outputs += [CompletionSeries(prompt, plan.length, sampling, -(-plan.texts // len(short))) for prompt in short]
    return [CompletionSeries(prompt, plan.greedy) for prompt in range(len(prompts))], openings, outputs


def sequential_requests(
    plan: ProvePlan, prompts: Sequence[TokenIds]
) -> tuple[list[CompletionSeries], list[CompletionRequest]]:
    """Return what is requested at batch size 1: greedy outputs, then one request repeatedly, without seeds and with."""
    series = [
        CompletionSeries(i % len(prompts), min(tokens, plan.greedy)) for i, tokens in enumerate(SEQUENTIAL_LENGTHS)
    ]
    request = CompletionRequest(prompts[sampled_prompts(prompts)[0]], plan.length, TEMPERATURE_ONE)
    seeds = [plan.seed, *range(plan.seed, plan.seed + plan.repeats)]
    return series, [request] * plan.repeats + [request._replace(seed=seed) for seed in seeds]


class Recording(Strict):
    """Everything that a server generated.

    Attributes:
        engine: Name of the engine.
        url: Address of the server.
        plan: What was requested.
        prompts: The prompts.
        sequential: Greedy outputs at batch size 1.
        concurrent: Greedy outputs that were generated concurrently with sampled ones.
        openings: First tokens of sampled outputs.
        outputs: Longer sampled outputs.
        repeated: Outputs of one request that was repeated.
        seeded: The same with a seed each; the first two have the same seed.
        drafts: Counts of draft tokens.
    """

    engine: str
    url: str
    plan: ProvePlan
    prompts: Annotated[tuple[TokenIds, ...], Field(min_length=1)]
    sequential: tuple[CompletedSeries, ...]
    concurrent: tuple[CompletedSeries, ...]
    openings: tuple[CompletedSeries, ...]
    outputs: tuple[CompletedSeries, ...]
    repeated: CompletedSeries
    seeded: CompletedSeries
    drafts: DraftCounters

    @model_validator(mode="after")
    def _matches_the_plan(self) -> Self:
        series, repeated = sequential_requests(self.plan, self.prompts)
        wanted = [*series, *(each for kind in concurrent_series(self.plan, self.prompts) for each in kind)]
        found = [*self.sequential, *self.concurrent, *self.openings, *self.outputs]
        if list(map(_request_of, found)) != wanted or len(self.repeated.texts + self.seeded.texts) != len(repeated):
            raise ValueError("the outputs are not those that the plan requests")
        return self

    @property
    def endings(self) -> tuple[TokenIds, ...]:
        """The texts that sampled outputs continue, by the index of the prompt."""
        return prompt_endings(self.plan, self.prompts)

    @property
    def token_count(self) -> int:
        """Number of generated tokens."""
        series = (*self.sequential, *self.concurrent, *self.openings, *self.outputs, self.repeated, self.seeded)
        return sum(len(text) for each in series for text in each.texts)


def count_requests(plan: ProvePlan, prompts: Sequence[TokenIds]) -> int:
    """Return the number of requests that `record` sends."""
    series, repeated = sequential_requests(plan, prompts)
    concurrent = [
        request for kind in concurrent_series(plan, prompts) for each in kind for request in each.requests(prompts)
    ]
    return len(series) + len(repeated) + len(concurrent)


def record(client: Client, plan: ProvePlan, prompts: tuple[TokenIds, ...]) -> Recording:
    """Send all requests: first some at batch size 1, then greedy and sampled requests of all kinds concurrently.

    Args:
        client: Client of the server.
        plan: What is requested.
        prompts: The prompts.

    Returns:
        The outputs.

    Raises:
        MTPCError: The server refuses a request, breaks off, or a response has another form.
    """
    before = client.counters()
    series, repetitions = sequential_requests(plan, prompts)
    first_requests = [next(each.requests(prompts)) for each in series]
    sequential = client.complete([*first_requests, *repetitions], concurrency=1)
    repeated = [text for (text,) in sequential.texts[len(series) :]]

    kinds = concurrent_series(plan, prompts)
    wanted = [each for kind in kinds for each in kind]
    endings = prompt_endings(plan, prompts)
    mixed = [
        (i, request)
        for i, each in enumerate(wanted)
        for request in each.requests(prompts if each.sampling == GREEDY else endings)
    ]
    random.Random(plan.seed).shuffle(mixed)  # noqa: S311 (an order, no secret)
    concurrent = client.complete([request for _, request in mixed])
    found: list[list[TokenIds]] = [[] for _ in wanted]
    for (i, _), completed in zip(mixed, concurrent.texts, strict=True):
        found[i] += completed
    completed_series = map(_completed, wanted, found)
    greedy, openings, outputs = (tuple(next(completed_series) for _ in kind) for kind in kinds)
    repeated_series = CompletionSeries(sampled_prompts(prompts)[0], plan.length, TEMPERATURE_ONE)
    return Recording(
        engine=client.api.name,
        url=client.url,
        plan=plan,
        prompts=prompts,
        sequential=tuple(map(_completed, series, sequential.texts)),
        concurrent=greedy,
        openings=openings,
        outputs=outputs,
        repeated=_completed(repeated_series, repeated[: plan.repeats]),
        seeded=_completed(repeated_series, repeated[plan.repeats :]),
        drafts=sequential.drafts + concurrent.drafts + client.counters().since(before),
    )


def _request_of(completed: CompletedSeries) -> CompletionSeries:
    """Return the series that was requested."""
    return CompletionSeries(completed.prompt, len(completed.texts[0]), completed.sampling, len(completed.texts))


def _completed(series: CompletionSeries, texts: Sequence[TokenIds]) -> CompletedSeries:
    return CompletedSeries(prompt=series.prompt, sampling=series.sampling, texts=tuple(texts))
