"""`mtpc distill`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mtpc.lab.options.names import EngineName, address
from mtpc.lab.options.numbers import MOST_MINUTES, MOST_REQUESTS, MOST_SEED, MOST_TOKENS, TEMPERATURE
from mtpc.lab.options.paths import folder_to_write, model_folder


def distill(
    target: Annotated[
        Path,
        typer.Option(
            callback=model_folder, help="The chat model that writes: a folder with a template, or a Hugging Face id."
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(callback=folder_to_write, help="Where conversations.jsonl goes; continued if it is there."),
    ],
    tokens: Annotated[
        int, typer.Option(min=1, max=10**12, help="Tokens of answers to stop at, earlier runs included.")
    ] = 600_000,
    questions: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help='Questions to answer before the target asks itself: JSON Lines with "text" or "user", "kind" and '
            '"language" if there are any.',
        ),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0.01, max=MOST_MINUTES, help="Stop after this time as well.")
    ] = None,
    engine: Annotated[EngineName, typer.Option(help="The engine that serves.")] = "vllm",
    offline: Annotated[
        bool, typer.Option("--offline", help="Write with the engine alone in a process (vllm only): faster on a CPU.")
    ] = False,
    url: Annotated[
        str | None, typer.Option(callback=address, help="A running server of the target; none is started then.")
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, max=MOST_REQUESTS, help="Conversations at a time.")] = 32,
    answer_tokens: Annotated[int, typer.Option(min=1, max=MOST_TOKENS, help="Tokens of an answer, at most.")] = 512,
    temperature: Annotated[float, typer.Option(parser=TEMPERATURE, help="Of the answers; 0 is greedy.")] = 0.6,
    top_p: Annotated[
        float,
        typer.Option(min=0.001, max=1, help="Of questions and answers; 1 is off (and much faster on a CPU)."),
    ] = 0.95,
    top_k: Annotated[int, typer.Option(min=0, max=MOST_TOKENS, help="Of the answers; 0 is off.")] = 20,
    server_arg: Annotated[
        list[str] | None, typer.Option(help="An argument for the server, as in --server-arg=--dtype=float32.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=MOST_SEED, help="Seed of openings and, but with --offline, of sampling.")
    ] = 0,
) -> None:
    """Let a chat model write the conversations that its drafter learns from (self-distillation).

    It answers --questions, if any are given: a drafter is for the questions of users. After those it asks itself: the
    target goes on with user turns that a few words have opened (questions, reasoning, code, other languages), or is
    asked about source code and texts of its own, then answers. Repetitions and near duplicates are left out. Every
    conversation is appended as it comes, so a run can be ended at any time and taken up again by the same command. The
    ids of the tokens are kept as they were sampled. The paper's temperature, top-k and top-p are the defaults.

    Examples:
    mtpc distill --target runs/smollm2 --out runs/distilled

    mtpc distill --target runs/smollm2 --out runs/distilled --offline --concurrency 128 --top-p 1

    mtpc distill --target runs/smollm2 --out runs/distilled --questions questions.jsonl --tokens 5000000

    mtpc distill --target runs/smollm2 --out runs/distilled --url http://127.0.0.1:8000 --tokens 1000000
    """
    from mtpc.lab.console import console
    from mtpc.lab.distill.client import SamplingOptions
    from mtpc.lab.distill.command import DistillRequest
    from mtpc.lab.distill.command import distill as run
    from mtpc.lab.distill.run import DistillationPlan

    plan = DistillationPlan(
        tokens=tokens,
        minutes=minutes,
        concurrency=concurrency,
        seed=seed,
        user=SamplingOptions(128, temperature=0.8, top_p=top_p, top_k=50),
        answer=SamplingOptions(answer_tokens, temperature, top_p, top_k),
    )
    run(DistillRequest(target, out, engine, url, tuple(server_arg or ()), offline, questions), plan, console())
