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
        str | None,
        typer.Argument(callback=address, help="Address of a running vLLM or SGLang server, with any drafter."),
    ] = None,
    baseline_url: Annotated[
        str | None, typer.Option(callback=address, help="Address of the same server without a drafter.")
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(callback=file_to_write, help="Write the outputs of the server to this file, to compare later."),
    ] = None,
    recorded: Annotated[
        Path | None, typer.Option(help="Compare the outputs in a file that --record wrote, in place of a server.")
    ] = None,
    prompts: Annotated[
        Path,
        typer.Option(
            help='JSON Lines file of prompts: "text", or "user" for messages that use the chat template of --target.',
            show_default="60 prompts of this package, half of them code",
        ),
    ] = SHIPPED,
    target: Annotated[
        Path | None,
        typer.Option(
            callback=model_folder, help="Served model, for its chat template only: a folder or a Hugging Face id."
        ),
    ] = None,
    samplings: Annotated[
        str,
        typer.Option(
            metavar="T/K/P,...", help="Sampling settings to test: temperature, top-k (up to 19; 0 is off) and top-p."
        ),
    ] = "1,0.7,1/0/0.9,1.3/10,0.7/10/0.9",
    samples: Annotated[
        int,
        typer.Option(min=100, max=10_000_000, help="Short outputs per sampling setting; more detect smaller faults."),
    ] = 4000,
    texts: Annotated[
        int,
        typer.Option(min=20, max=MOST_PROMPTS, help="Longer outputs per sampling setting, with every token tested."),
    ] = 400,
    length: Annotated[
        int, typer.Option(min=4, max=4096, help="Tokens of a longer output: at least K + 2 for K draft tokens.")
    ] = 32,
    context: Annotated[
        int,
        typer.Option(min=1, max=1 << 20, help="Number of last tokens of a prompt that sampled outputs continue."),
    ] = 16,
    concurrency: Annotated[int, typer.Option(min=1, max=MOST_REQUESTS, help="Number of concurrent requests.")] = 16,
    tie: Annotated[
        float,
        typer.Option(min=0, max=10, help="Largest gap of log-probabilities in greedy output that counts as rounding."),
    ] = 0.25,
    out: Annotated[Path, typer.Option(callback=folder_to_write, help="Folder for the report.")] = Path("runs/prove"),
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED // 2, help="First of the seeds of requests.")] = 0,
) -> None:
    """Test that a server with any drafter has the same output distribution as the same server without one.

    Greedy outputs must equal the baseline's, at batch size 1 and among concurrent requests. Where they differ, the gap
    of log-probabilities separates rounding (bfloat16) from a fault.

    Sampled outputs must follow the distribution that the baseline states. Chi-square tests compare the joint
    distribution of the first tokens. Further tests check every token of longer outputs: in total, by position, and
    together with the previous token and with concurrent outputs. Repeated requests must not repeat their output.

    The baseline takes the same tests; if it fails one, nothing is proved. All tests together reject a correct server in
    0.1% of runs. The report states the smallest difference that each test detects.

    The command writes report.json and report.html. Exit code 0 means the same distribution; 1 means that it differs, or
    that nothing is proved.

    Examples:
    ```
    # Compare two running servers.
    mtpc prove http://127.0.0.1:8000 --baseline-url http://127.0.0.1:8001

    # If only one server fits into memory: record it, stop it, and compare.
    mtpc prove http://127.0.0.1:8000 --record runs/a.json
    mtpc prove --recorded runs/a.json --baseline-url http://127.0.0.1:8001

    # Detect smaller faults with ten times the samples.
    mtpc prove http://127.0.0.1:8000 --record runs/a.json --samples 40000
    ```
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
