"""`mtpc distill`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def distill(
    target: Annotated[Path, typer.Option(help="The chat model that writes: a Hugging Face folder with a template.")],
    out: Annotated[Path, typer.Option(help="Where conversations.jsonl goes; continued if it is there.")],
    tokens: Annotated[int, typer.Option(help="Tokens of answers to stop at, earlier runs included.")] = 600_000,
    minutes: Annotated[float | None, typer.Option(help="Stop after this time as well.")] = None,
    engine: Annotated[str, typer.Option(help="The engine that serves: vllm or sglang.")] = "vllm",
    offline: Annotated[
        bool, typer.Option("--offline", help="Write with the engine alone in a process (vllm only): faster on a CPU.")
    ] = False,
    url: Annotated[str | None, typer.Option(help="A running server of the target; none is started then.")] = None,
    concurrency: Annotated[int, typer.Option(help="Conversations at a time.")] = 32,
    answer_tokens: Annotated[int, typer.Option(help="Tokens of an answer, at most.")] = 512,
    temperature: Annotated[float, typer.Option(help="Of the answers; 0 is greedy.")] = 0.6,
    top_p: Annotated[float, typer.Option(help="Of questions and answers; 1 is off (and much faster on a CPU).")] = 0.95,
    top_k: Annotated[int, typer.Option(help="Of the answers; 0 is off.")] = 20,
    server_arg: Annotated[
        list[str] | None, typer.Option(help="An argument for the server, as in --server-arg=--dtype=float32.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of openings and, but with --offline, of sampling.")] = 0,
) -> None:
    """Let a chat model write the conversations that its drafter learns from (self-distillation).

    The target goes on with user turns that a few words have opened (questions, reasoning, code, other languages), then
    answers them. Repetitions and near duplicates are left out. Every conversation is appended as it comes, so a
    run can be ended at any time and taken up again by the same command. The ids of the tokens are kept as they
    were sampled. The paper's temperature, top-k and top-p are the defaults.

    Examples:

    mtpc distill --target runs/smollm2 --out runs/distilled

    mtpc distill --target runs/smollm2 --out runs/distilled --offline --concurrency 128 --top-p 1

    mtpc distill --target runs/smollm2 --out runs/distilled --url http://127.0.0.1:8000 --tokens 1000000
    """
    from rich.console import Console

    from mtpc.distill.client import Sampling
    from mtpc.distill.command import Request
    from mtpc.distill.command import distill as run
    from mtpc.distill.run import Plan

    plan = Plan(
        tokens=tokens,
        minutes=minutes,
        concurrency=concurrency,
        seed=seed,
        user=Sampling(128, temperature=0.8, top_p=top_p, top_k=50),
        answer=Sampling(answer_tokens, temperature, top_p, top_k),
    )
    run(Request(target, out, engine, url, tuple(server_arg or ()), offline), plan, Console())
