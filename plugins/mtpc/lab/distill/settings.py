"""The options of `mtpc distill`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from mtpc.errors import MTPCError
from mtpc.lab.options.names import EngineName, address
from mtpc.lab.options.numbers import MOST_MINUTES, MOST_REQUESTS, MOST_SEED, MOST_TOKENS, TEMPERATURE
from mtpc.lab.options.paths import folder_to_write, model_folder
from mtpc.lab.options.settings import After

MAX_PROMPT_TOKENS = 768  # longest question, chat template and quoted text included


@dataclass(frozen=True)
class SamplingOptions:
    """Sampling parameters. The defaults are those of the FastMTP paper's answers (appendix A)."""

    max_tokens: Annotated[
        int, typer.Option("--answer-tokens", min=1, max=MOST_TOKENS, help="Largest number of tokens per answer.")
    ] = 512
    temperature: Annotated[
        float, typer.Option(parser=TEMPERATURE, help="Sampling temperature of answers; 0 means greedy.")
    ] = 0.6
    top_p: Annotated[
        float,
        typer.Option(
            min=0.001, max=1, help="Top-p of questions and answers; 1 switches it off, which is faster on a CPU."
        ),
    ] = 0.95
    top_k: Annotated[int, typer.Option(min=0, max=MOST_TOKENS, help="Top-k of answers; 0 switches it off.")] = 20

    def body(self) -> dict[str, Any]:
        """Return the sampling fields of a completion request."""
        body = {"max_tokens": self.max_tokens, "temperature": self.temperature, "top_p": self.top_p}
        return {**body, "top_k": self.top_k} if self.top_k else body


@dataclass(frozen=True)
class DistillationPlan:
    """Amount and sampling of the conversations."""

    tokens: Annotated[
        int,
        After("out"),
        typer.Option(min=1, max=10**12, help="Stop at this number of generated tokens, earlier runs included."),
    ] = 600_000
    minutes: Annotated[
        float | None,
        After("questions"),
        typer.Option(min=0.01, max=MOST_MINUTES, help="Stop after this time at the latest."),
    ] = None
    concurrency: Annotated[int, typer.Option(min=1, max=MOST_REQUESTS, help="Number of concurrent conversations.")] = 32
    answer: SamplingOptions = field(default_factory=SamplingOptions)
    seed: Annotated[
        int,
        After("server_arg"),
        typer.Option(min=0, max=MOST_SEED, help="Seed of the openings and, without --offline, of sampling."),
    ] = 0

    @property
    def user(self) -> SamplingOptions:
        """Sampling of user turns that the target generates."""
        return SamplingOptions(128, temperature=0.8, top_p=self.answer.top_p, top_k=50)

    @property
    def longest(self) -> int:
        """Longest conversation, in tokens."""
        return self.user.max_tokens + self.answer.max_tokens + MAX_PROMPT_TOKENS


@dataclass(frozen=True)
class DistillRequest:
    """Files and engine of a distillation, and its plan.

    Raises:
        MTPCError: ``offline`` and ``url`` are both given.
    """

    target: Annotated[
        Path,
        typer.Option(
            callback=model_folder,
            help="Chat model that writes the conversations: a folder with a chat template, or a Hugging Face id.",
        ),
    ]
    out: Annotated[
        Path,
        typer.Option(callback=folder_to_write, help="Folder for conversations.jsonl; an existing file is continued."),
    ]
    questions: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help='Answer these prompts first: a JSON Lines file with "text" or "user", and optionally "kind" and '
            '"language".',
        ),
    ] = None
    engine: Annotated[EngineName, typer.Option(help="Engine that serves the target.")] = "vllm"
    offline: Annotated[
        bool,
        typer.Option("--offline", help="Run the engine in one process (vllm only), which is faster on a CPU."),
    ] = False
    url: Annotated[
        str | None, typer.Option(callback=address, help="Use this running server of the target, and start none.")
    ] = None
    plan: DistillationPlan = field(default_factory=DistillationPlan)
    server_arg: Annotated[
        list[str] | None,
        typer.Option(help="Add an argument to the server, as in --server-arg=--dtype=float32; may be repeated."),
    ] = None

    def __post_init__(self) -> None:
        if self.url is not None and self.offline:
            raise MTPCError(f"--offline starts an engine of its own; remove it, or remove --url {self.url}.")
