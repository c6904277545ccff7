"""A whole benchmark: servers started or reached, measured, reported."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console

from mtpc.errors import MTPCError
from mtpc.lab.bench import report
from mtpc.lab.bench.measure import Measurement
from mtpc.lab.bench.results import DRAFTER, NO_DRAFTER
from mtpc.lab.bench.run import Plan, run_plan
from mtpc.lab.console import progress_on
from mtpc.lab.servers.engine import Engine, ServerSettings
from mtpc.lab.servers.engine_registry import find_engine, must_be_installed
from mtpc.lab.servers.ngram import Ngram
from mtpc.lab.servers.server import Server, side_by_side
from mtpc.lab.servers.speculation import drafts_of
from mtpc.lab.targets.folder import stated_sizes
from mtpc.lab.text.prompts import Prompt, prompt_length, read_prompts


@dataclass(frozen=True)
class Request:
    """What the user asked for: folders to serve, or the addresses of two servers."""

    engine: str
    offline: bool
    target: Path | None
    drafter: Path | None
    num_drafts: int | None
    ngram: Ngram | None  # None: as the engine's own n-gram drafter is set where nothing is said
    no_ngram: bool
    url: str | None
    baseline_url: str | None
    server_arguments: tuple[str, ...]  # of all servers
    drafter_arguments: tuple[str, ...]  # of the one with the drafter
    draft_times: bool
    prompts: Path
    out: Path

    def __post_init__(self) -> None:
        if (self.url is None) != (self.baseline_url is None):
            raise MTPCError("--url and --baseline-url go together: a server with the drafter and one without.")
        if self.url is None and (self.target is None or self.drafter is None):
            raise MTPCError(
                "give --target and --drafter to start servers, or --url and --baseline-url of two running ones."
            )
        if self.url is not None and self.offline:
            raise MTPCError("--offline measures engines that it starts itself; it does not go with --url.")
        if self.url is not None and self.drafter is not None:
            raise MTPCError(
                "give either --drafter, for servers that are started, or --url and --baseline-url of running ones."
            )
        if self.ngram is not None and (self.no_ngram or self.url is not None):
            raise MTPCError("--ngram is for a server that is started; it goes neither with --url nor with --no-ngram.")


def own_ngram(request: Request, plan: Plan, engine: Engine, console: Console) -> Ngram | None:
    """How the engine's own n-gram drafter is measured; None where it is not, which the user is told.

    Errors: `MTPCError` where the user set it and it cannot be measured.
    """
    if request.no_ngram:
        return None
    ngram = request.ngram or engine.ngram
    obstacle = engine.ngram_obstacle(ngram, plan.temperatures)
    if obstacle is None:
        return ngram
    sentence = f"{engine.title}'s own n-gram drafter cannot be measured: {obstacle}."
    if request.ngram is not None:
        raise MTPCError(sentence)
    console.print(sentence, highlight=False)
    return None


def server_settings(
    request: Request, plan: Plan, engine: Engine, longest_prompt: int, ngram: Ngram | None
) -> dict[str, ServerSettings]:
    """What is started: without a drafter, with the drafter and with the engine's own, by name; equal but for that.

    Without the drafter the engine is as it is released, without our plugin where it can do without.
    longest_prompt: in tokens.

    Errors: `MTPCError` for a target that is none, or a drafter of another one.
    """
    assert request.target is not None and request.drafter is not None  # checked when the request was made
    num_drafts = drafts_of(request.drafter, request.num_drafts, stated_sizes(request.target))
    length = longest_prompt + plan.max_tokens + max(num_drafts, 0 if ngram is None else ngram.drafts)
    plain = ServerSettings(request.target, max(plan.batch_sizes), length, extra=request.server_arguments)
    extra = plain.extra + request.drafter_arguments
    drafted = replace(plain, drafter=request.drafter, num_drafts=num_drafts, extra=extra)
    own = {} if ngram is None else {f"n-gram {ngram}": replace(plain, ngram=ngram)}
    found = {NO_DRAFTER: plain, DRAFTER: drafted, **own}
    return {name: engine.as_released(one, plan.temperatures) for name, one in found.items()}


def plugin_notes(engine: Engine, servers: Mapping[str, Server], temperatures: Sequence[float]) -> list[str]:
    """Sentences on which of the servers that were started load this project's plugin; none for running ones."""
    released = [name for name, server in servers.items() if server.plugin is False]
    fixed = [name for name, server in servers.items() if server.plugin and name != DRAFTER]
    notes = []
    if released:
        notes.append(f"Without this project's plugin, the engine as it is released: {', '.join(released)}.")
    if fixed:
        notes.append(f"With the plugin: {', '.join(fixed)}. {engine.ngram_plugin_reason(temperatures) or ''}".rstrip())
    return notes


@contextmanager
def servers_of(
    request: Request, plan: Plan, engine: Engine, prompts: Sequence[Prompt], console: Console
) -> Iterator[dict[str, Server]]:
    """The servers that the request names, or that it has started; those are gone afterwards."""
    if request.url is not None and request.baseline_url is not None:
        urls = {NO_DRAFTER: request.baseline_url, DRAFTER: request.url}
        yield {name: Server(url.rstrip("/"), []) for name, url in urls.items()}
        return
    must_be_installed(engine)
    ngram = own_ngram(request, plan, engine, console)
    settings = server_settings(request, plan, engine, max(map(prompt_length, prompts)), ngram)
    console.print(f"starting {engine.title} for each of: {', '.join(settings)} ...", highlight=False)
    with side_by_side(engine, settings, request.out, request.draft_times) as servers:
        yield servers


def run_benchmark(request: Request, plan: Plan, console: Console) -> None:
    """Measure, print the tables and write results.json, results.md and results.png.

    Errors: `MTPCError` for settings or files that are wrong, or a server that does not start or breaks off.
    """
    from mtpc.lab.bench import plot

    engine = find_engine(request.engine, request.offline)
    prompts = [prompt for prompt, _ in read_prompts(request.prompts, request.target)]
    progress = progress_on(console)
    bar = progress.add_task("measuring", total=None)

    def told(name: str, measurement: Measurement) -> None:
        progress.console.print(f"{name}: {measurement.tokens_per_second:.1f} tokens/s", highlight=False)
        progress.advance(bar)

    with servers_of(request, plan, engine, prompts, console) as servers, progress:
        progress.update(bar, total=plan.measurements(len(servers)))
        points = run_plan(engine, servers, prompts, plan, told)
    facts = {
        "plan": asdict(plan),
        "prompts": str(request.prompts),
        "servers": [shlex.join(server.command) for server in servers.values()],
        "plugin": {name: server.plugin for name, server in servers.items()},
        "engine": request.engine,
        "target": None if request.target is None else str(request.target),
        "drafter": None if request.drafter is None else str(request.drafter),
    }
    notes = plugin_notes(engine, servers, plan.temperatures)
    report.write(request.out, points, facts | {"notes": notes}, notes)
    plot.save(request.out / "results.png", points)
    report.show(points, console, notes)
    console.print(f"written to {request.out}")
