"""The whole of `mtpc bench`: start or reach the servers, measure them, and write the report."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace

from rich.console import Console

from mtpc.errors import MTPCError
from mtpc.lab.bench import report
from mtpc.lab.bench.measure import Measurement
from mtpc.lab.bench.results import DRAFTER, NO_DRAFTER
from mtpc.lab.bench.run import run_plan
from mtpc.lab.bench.settings import BenchOptions
from mtpc.lab.console import progress_on
from mtpc.lab.servers.engine import Engine, ServerSettings
from mtpc.lab.servers.engine_registry import find_engine, must_be_installed
from mtpc.lab.servers.ngram import Ngram
from mtpc.lab.servers.server import Server, base_url, side_by_side
from mtpc.lab.servers.speculation import resolve_num_drafts
from mtpc.lab.targets.folder import stated_sizes
from mtpc.lab.text.prompts import Prompt, prompt_length, read_prompts


def engine_ngram(request: BenchOptions, engine: Engine, console: Console) -> Ngram | None:
    """Choose the setting of the engine's own n-gram drafter.

    Returns:
        The setting; None where the drafter is left out, with a printed reason unless ``--no-ngram`` was given.

    Raises:
        MTPCError: The user gave a setting that cannot be measured.
    """
    if request.no_ngram:
        return None
    ngram = request.parsed_ngram or engine.ngram
    obstacle = engine.ngram_obstacle(ngram, request.plan.temperatures)
    if obstacle is None:
        return ngram
    sentence = f"{engine.title}'s own n-gram drafter cannot be measured: {obstacle}."
    if request.ngram is not None:
        raise MTPCError(sentence)
    console.print(sentence, highlight=False)
    return None


def server_settings(
    request: BenchOptions, engine: Engine, longest_prompt: int, ngram: Ngram | None
) -> dict[str, ServerSettings]:
    """Return the settings of the servers to start, by name: no drafter, the drafter, and the engine's n-gram drafter.

    They differ in the drafter only.  Servers without this project's drafter do not load its plugin unless they need it.

    Args:
        request: The user's options.
        engine: The engine.
        longest_prompt: Tokens of the longest prompt.
        ngram: Setting of the n-gram drafter; None to leave it out.

    Raises:
        MTPCError: The target's folder is wrong, the drafter was trained for another target, or two options set the
            same.
    """
    assert request.target is not None and request.drafter is not None  # checked by BenchOptions
    num_drafts = resolve_num_drafts(request.drafter, request.num_drafts, stated_sizes(request.target))
    length = longest_prompt + request.plan.max_tokens + max(num_drafts, 0 if ngram is None else ngram.drafts)
    plain = ServerSettings(request.target, max(request.plan.batch_sizes), length, extra=tuple(request.server_arg or ()))
    extra = plain.extra + _fixed_length(request, engine) + tuple(request.drafter_arg or ())
    drafted = replace(plain, drafter=request.drafter, num_drafts=num_drafts, extra=extra)
    others = {} if ngram is None else {f"n-gram {ngram}": replace(plain, ngram=ngram)}
    settings = {NO_DRAFTER: plain, DRAFTER: drafted, **others}
    return {name: engine.as_released(one, request.plan.temperatures) for name, one in settings.items()}


def _fixed_length(request: BenchOptions, engine: Engine) -> tuple[str, ...]:
    """Return the arguments of ``--fixed-length``; none without it."""
    if not request.fixed_length:
        return ()
    option, value = engine.fixed_length
    for argument in request.drafter_arg or ():
        if argument.startswith(option):
            raise MTPCError(
                f"--fixed-length sets {option} to {value!r}, which --drafter-arg={argument} would replace: write the "
                "setting into the latter and remove --fixed-length."
            )
    return engine.fixed_length


def plugin_notes(engine: Engine, servers: Mapping[str, Server], temperatures: Sequence[float]) -> list[str]:
    """Return sentences that name the servers with and without this project's plugin; none for running servers."""
    unmodified = [name for name, server in servers.items() if server.plugin is False]
    patched = [name for name, server in servers.items() if server.plugin and name != DRAFTER]
    notes = []
    if unmodified:
        notes.append(f"Without this project's plugin (the released engine): {', '.join(unmodified)}.")
    if patched:
        reason = engine.ngram_plugin_reason(temperatures) or ""
        notes.append(f"With the plugin: {', '.join(patched)}. {reason}".rstrip())
    return notes


@contextmanager
def servers_of(
    request: BenchOptions, engine: Engine, prompts: Sequence[Prompt], console: Console
) -> Iterator[dict[str, Server]]:
    """Yield the servers by name: the running ones, or those that are started and stopped afterwards."""
    if request.url is not None and request.baseline_url is not None:
        urls = {NO_DRAFTER: request.baseline_url, DRAFTER: request.url}
        yield {name: Server(base_url(url), []) for name, url in urls.items()}
        return
    must_be_installed(engine)
    ngram = engine_ngram(request, engine, console)
    settings = server_settings(request, engine, max(map(prompt_length, prompts)), ngram)
    console.print(f"starting {engine.title} for each of: {', '.join(settings)} ...", highlight=False)
    with side_by_side(engine, settings, request.out, request.draft_times) as servers:
        yield servers


def run_benchmark(request: BenchOptions, console: Console) -> None:
    """Measure, print the tables and write results.json, results.md and results.png.

    Args:
        request: The user's options.
        console: Where tables and progress are printed.

    Raises:
        MTPCError: A setting or file is wrong, or a server does not start or breaks off.
    """
    from mtpc.lab.bench import plot

    engine = find_engine(request.engine, request.offline)
    prompts = [prompt for prompt, _ in read_prompts(request.prompts, request.target)]
    progress = progress_on(console)
    bar = progress.add_task("measuring", total=None)

    def on_measurement(name: str, measurement: Measurement) -> None:
        progress.console.print(f"{name}: {measurement.tokens_per_second:.1f} tokens/s", highlight=False)
        progress.advance(bar)

    with servers_of(request, engine, prompts, console) as servers, progress:
        progress.update(bar, total=request.plan.measurements(len(servers)))
        points = run_plan(engine, servers, prompts, request.plan, on_measurement)
    facts = {
        "plan": asdict(request.plan),
        "prompts": str(request.prompts),
        "servers": [shlex.join(server.command) for server in servers.values()],
        "plugin": {name: server.plugin for name, server in servers.items()},
        "engine": request.engine,
        "fixed_length": request.fixed_length,
        "target": None if request.target is None else str(request.target),
        "drafter": None if request.drafter is None else str(request.drafter),
    }
    notes = plugin_notes(engine, servers, request.plan.temperatures)
    notes += [*report.draftless_notes(points), *report.outlier_notes(points)]
    report.write(request.out, points, facts | {"notes": notes}, notes)
    plot.save(request.out / "results.png", points)
    report.show(points, console, notes)
    console.print(f"written to {request.out}")
