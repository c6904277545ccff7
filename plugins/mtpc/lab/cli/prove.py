"""`mtpc prove`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mtpc.lab.options.names import address
from mtpc.lab.options.numbers import MOST_PROMPTS, MOST_REQUESTS, MOST_SEED
from mtpc.lab.options.paths import file_to_write, folder_to_write, model_folder
from mtpc.lab.text.prompts import SHIPPED


def prove(
    url: Annotated[
        str | None, typer.Argument(callback=address, help="A running server of vLLM or SGLang, with any drafter.")
    ] = None,
    baseline_url: Annotated[
        str | None, typer.Option(callback=address, help="The same server without a drafter.")
    ] = None,
    record: Annotated[
        Path | None, typer.Option(callback=file_to_write, help="Write what the server said, to compare it later.")
    ] = None,
    recorded: Annotated[Path | None, typer.Option(help="What --record wrote, in the place of a server.")] = None,
    prompts: Annotated[
        Path,
        typer.Option(
            help='JSON Lines with the field "text", or "user" for the chat template of --target.',
            show_default="60 texts of this package, half of them code",
        ),
    ] = SHIPPED,
    target: Annotated[
        Path | None,
        typer.Option(callback=model_folder, help="The model that is served, for its chat template: a folder or an id."),
    ] = None,
    samplings: Annotated[
        str,
        typer.Option(metavar="T/K/P,...", help="Temperature, top-k (19 at most; 0: all) and top-p of the sampling."),
    ] = "1,0.7,1/0/0.9,1.3/10,0.7/10/0.9",
    samples: Annotated[
        int,
        typer.Option(min=100, max=10_000_000, help="Beginnings of texts for each sampling, which give it its power."),
    ] = 4000,
    texts: Annotated[
        int, typer.Option(min=20, max=MOST_PROMPTS, help="Texts for each sampling of which every token is looked at.")
    ] = 400,
    length: Annotated[
        int, typer.Option(min=4, max=4096, help="Tokens of such a text: more than a step drafts, and two.")
    ] = 32,
    context: Annotated[
        int,
        typer.Option(min=1, max=1 << 20, help="Tokens of a prompt, its last ones, that sampled texts go on from."),
    ] = 16,
    concurrency: Annotated[int, typer.Option(min=1, max=MOST_REQUESTS, help="Requests at a time.")] = 16,
    tie: Annotated[
        float,
        typer.Option(min=0, max=10, help="Largest gap of log-probabilities that rounding may turn, of greedy texts."),
    ] = 0.25,
    out: Annotated[Path, typer.Option(callback=folder_to_write, help="Where the report goes.")] = Path("runs/prove"),
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED // 2, help="The first of the requests' seeds.")] = 0,
) -> None:
    """Prove that a server with a drafter, ours or any other, says what the same server without one says.

    Greedy texts must be the baseline's, alone and among other requests; where they part, every token is held against
    what the baseline states, and a gap that rounding explains (bfloat16) is told from a fault. Sampled texts must be of
    the distribution that the baseline states: the joint of the first tokens after the same prompts, by chi-square; and
    every token of longer texts, all together, by place, beside the token before and beside the texts sampled at the
    same time. A request that is sent again without a seed, or with another, must not be answered the same.

    The baseline samples as well and passes the same tests, or nothing is proved. All tests together find a server
    wrong that is right in 0.1 % of all runs; the report states for each the misstatement that it would have seen.

    report.json and report.html are written. Exit code 0: the same; 1: not the same, or nothing proved.

    Where only one server fits into memory: --record first, then --recorded with the other.

    Examples:
    mtpc prove http://127.0.0.1:8000 --baseline-url http://127.0.0.1:8001

    mtpc prove http://127.0.0.1:8000 --baseline-url http://127.0.0.1:8001 --samples 40000 --samplings 0.6/19/0.95

    mtpc prove http://127.0.0.1:8000 --record runs/recording.json

    mtpc prove --recorded runs/recording.json --baseline-url http://127.0.0.1:8000
    """
    from mtpc.lab.console import console
    from mtpc.lab.prove import command
    from mtpc.lab.prove.plan import ProvePlan, parse_samplings

    plan = ProvePlan(
        samplings=parse_samplings(samplings),
        samples=samples,
        texts=texts,
        length=length,
        context=context,
        concurrency=concurrency,
        seed=seed,
    )
    options = command.ProveOptions(
        url=url,
        baseline_url=baseline_url,
        recorded=recorded,
        record=record,
        prompts=prompts,
        target=target,
        tie=tie,
        out=out,
    )
    report = command.prove(options, plan, console())
    if report is not None and report.verdict != "the same":
        raise typer.Exit(1)
