"""The options of `mtpc prove`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from mtpc.errors import MTPCError
from mtpc.lab.options.names import address
from mtpc.lab.options.numbers import MOST_PROMPTS, MOST_REQUESTS, MOST_SEED
from mtpc.lab.options.paths import file_to_write, folder_to_write, model_folder
from mtpc.lab.prove.plan import ProvePlan, parse_samplings
from mtpc.lab.text.prompts import SHIPPED


@dataclass(frozen=True)
class ProveOptions:
    """The servers to compare, or the recording of one, and how they are tested.

    Raises:
        MTPCError: A server is missing or given twice, or ``samplings`` has another form or is out of bounds.
    """

    url: Annotated[
        str | None,
        typer.Argument(callback=address, help="Address of a running vLLM or SGLang server, with any drafter."),
    ] = None
    baseline_url: Annotated[
        str | None, typer.Option(callback=address, help="Address of the same server without a drafter.")
    ] = None
    record: Annotated[
        Path | None,
        typer.Option(callback=file_to_write, help="Write the outputs of the server to this file, to compare later."),
    ] = None
    recorded: Annotated[
        Path | None, typer.Option(help="Compare the outputs in a file that --record wrote, in place of a server.")
    ] = None
    prompts: Annotated[
        Path,
        typer.Option(
            help='JSON Lines file of prompts: "text", or "user" for messages that use the chat template of --target.',
            show_default="60 prompts of this package, half of them code",
        ),
    ] = SHIPPED
    target: Annotated[
        Path | None,
        typer.Option(
            callback=model_folder, help="Served model, for its chat template only: a folder or a Hugging Face id."
        ),
    ] = None
    samplings: Annotated[
        str,
        typer.Option(
            metavar="T/K/P,...", help="Sampling settings to test: temperature, top-k (up to 19; 0 is off) and top-p."
        ),
    ] = "1,0.7,1/0/0.9,1.3/10,0.7/10/0.9"
    samples: Annotated[
        int,
        typer.Option(min=100, max=10_000_000, help="Short outputs per sampling setting; more detect smaller faults."),
    ] = 4000
    texts: Annotated[
        int,
        typer.Option(min=20, max=MOST_PROMPTS, help="Longer outputs per sampling setting, with every token tested."),
    ] = 400
    length: Annotated[
        int, typer.Option(min=4, max=4096, help="Tokens of a longer output: at least K + 2 for K draft tokens.")
    ] = 32
    context: Annotated[
        int,
        typer.Option(min=1, max=1 << 20, help="Number of last tokens of a prompt that sampled outputs continue."),
    ] = 16
    concurrency: Annotated[int, typer.Option(min=1, max=MOST_REQUESTS, help="Number of concurrent requests.")] = 16
    tie: Annotated[
        float,
        typer.Option(min=0, max=10, help="Largest gap of log-probabilities in greedy output that counts as rounding."),
    ] = 0.25
    out: Annotated[Path, typer.Option(callback=folder_to_write, help="Folder for the report.")] = Path("runs/prove")
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED // 2, help="First of the seeds of requests.")] = 0

    def __post_init__(self) -> None:
        parse_samplings(self.samplings)
        if (self.url is None) == (self.recorded is None):
            raise MTPCError("give either the URL of a server, or --recorded FILE with the outputs of one.")
        if self.baseline_url is None and (self.record is None or self.url is None):
            raise MTPCError(
                "--baseline-url is missing: give the URL of the same server without a drafter, or --record FILE to "
                "compare later."
            )

    @property
    def plan(self) -> ProvePlan:
        """The requests to the server."""
        return ProvePlan(
            samplings=parse_samplings(self.samplings),
            samples=self.samples,
            texts=self.texts,
            length=self.length,
            context=self.context,
            concurrency=self.concurrency,
            seed=self.seed,
        )
