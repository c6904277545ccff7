"""The options of `mtpc bench`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from mtpc.errors import MTPCError
from mtpc.lab.options.names import EngineName, address
from mtpc.lab.options.numbers import MOST_DRAFTS, MOST_REQUESTS, MOST_TOKENS, TEMPERATURE, Bounds, NumberList
from mtpc.lab.options.paths import folder_to_write, model_folder
from mtpc.lab.options.settings import After
from mtpc.lab.servers.ngram import Ngram
from mtpc.lab.text.prompts import SHIPPED


@dataclass(frozen=True)
class BenchPlan:
    """What a benchmark measures, the servers in turn in each round so that drift of the machine cancels.

    A measurement has at least two requests for each slot of the batch.
    """

    batch_sizes: Annotated[
        Sequence[int],
        typer.Option(
            metavar="1,2,...",
            parser=NumberList(Bounds(1, MOST_REQUESTS)),
            help="Batch sizes to measure: numbers of concurrent requests.",
        ),
    ] = (1, 2, 4, 8, 16)
    temperatures: Annotated[
        Sequence[float],
        typer.Option(
            metavar="0,1,...", parser=NumberList(TEMPERATURE), help="Sampling temperatures to measure; 0 means greedy."
        ),
    ] = (0, 1)
    max_tokens: Annotated[
        int,
        typer.Option(min=1, max=MOST_TOKENS, help="Tokens per completion; for chat prompts, the largest number."),
    ] = 256
    rounds: Annotated[
        int, typer.Option(min=1, max=1000, help="Measurements of each point; the servers take turns in each round.")
    ] = 2
    requests: Annotated[
        int, typer.Option(min=1, max=MOST_REQUESTS, help="Minimum number of requests per measurement.")
    ] = 8

    def measurements(self, servers: int) -> int:
        """Return the number of measurements of the whole plan on ``servers`` servers."""
        return servers * self.rounds * len(self.batch_sizes) * len(self.temperatures)


@dataclass(frozen=True)
class BenchOptions:
    """The servers to start, or the addresses of two running ones, and what is measured.

    Raises:
        MTPCError: Options are missing or contradict each other.
    """

    target: Annotated[
        Path | None,
        typer.Option(
            callback=model_folder,
            help="Target to serve: a folder or a Hugging Face id. With --url, the folder with its chat template.",
        ),
    ] = None
    drafter: Annotated[
        Path | None,
        typer.Option(callback=model_folder, help="Drafter checkpoint to serve: a folder or a Hugging Face id."),
    ] = None
    engine: Annotated[EngineName, typer.Option(help="Engine to measure.")] = "vllm"
    offline: Annotated[
        bool, typer.Option("--offline", help="Measure the engine in one process, without a server (vllm only).")
    ] = False
    num_drafts: Annotated[
        int | None,
        typer.Option(
            min=1, max=MOST_DRAFTS, help="Draft tokens per decoding step, K [default: as the drafter was trained]."
        ),
    ] = None
    fixed_length: Annotated[
        bool,
        typer.Option(
            "--fixed-length",
            help="Draft K tokens in every step, as `mtpc plan` requires. Without it, draft lengths adapt on a CPU.",
        ),
    ] = False
    ngram: Annotated[
        str | None,
        typer.Option(
            metavar="MIN-MAX:K",
            help="Setting of the engine's own n-gram drafter: K draft tokens where MIN to MAX tokens match "
            "[default: 2-4:5 for vLLM, 1-7:11 for SGLang].",
        ),
    ] = None
    no_ngram: Annotated[
        bool, typer.Option("--no-ngram", help="Leave out the engine's own n-gram drafter, which is one server less.")
    ] = False
    plan: BenchPlan = field(default_factory=BenchPlan)
    prompts: Annotated[
        Path,
        After("max_tokens"),
        typer.Option(
            help='JSON Lines file of prompts: "text", or "user" for messages that use the target\'s chat template.',
            show_default="60 prompts of this package, half of them code",
        ),
    ] = SHIPPED
    out: Annotated[
        Path,
        typer.Option(
            callback=folder_to_write, help="Folder for results and server logs; earlier results are replaced."
        ),
    ] = Path("runs/bench")
    draft_times: Annotated[
        bool, typer.Option(help="Time drafting and its parts, without synchronizing the device.")
    ] = True
    server_arg: Annotated[
        list[str] | None,
        typer.Option(help="Add an argument to all servers, as in --server-arg=--dtype=float32; may be repeated."),
    ] = None
    drafter_arg: Annotated[
        list[str] | None,
        typer.Option(help="Add an argument only to the server with the drafter; may be repeated."),
    ] = None
    url: Annotated[
        str | None,
        typer.Option(callback=address, help="Measure this running server with the drafter, and start none."),
    ] = None
    baseline_url: Annotated[
        str | None, typer.Option(callback=address, help="Running server without a drafter, to compare --url with.")
    ] = None

    def __post_init__(self) -> None:
        ngram = self.parsed_ngram
        if (self.url is None) != (self.baseline_url is None):
            given, other = ("--url", "--baseline-url") if self.baseline_url is None else ("--baseline-url", "--url")
            raise MTPCError(f"{given} requires {other}: give a server with the drafter and one without.")
        if self.url is None and (self.target is None or self.drafter is None):
            raise MTPCError(
                "--target or --drafter is missing: give both to start servers, or --url and --baseline-url of two "
                "running ones."
            )
        if ngram is not None and self.no_ngram:
            raise MTPCError(f"--ngram {ngram} cannot be combined with --no-ngram: leave one out.")
        of_started_servers = {
            "--drafter": self.drafter,
            "--offline": self.offline,
            "--num-drafts": self.num_drafts,
            "--fixed-length": self.fixed_length,
            "--ngram": self.ngram,
            "--server-arg": self.server_arg,
            "--drafter-arg": self.drafter_arg,
        }
        for name, value in of_started_servers.items():
            if value and self.url is not None:
                raise MTPCError(f"{name} cannot be combined with --url, which names running servers: leave one out.")

    @property
    def parsed_ngram(self) -> Ngram | None:
        """The given setting of the engine's own n-gram drafter; None for the engine's default."""
        return None if self.ngram is None else Ngram.parse(self.ngram)
