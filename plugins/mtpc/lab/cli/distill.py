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
            callback=model_folder,
            help="Chat model that writes the conversations: a folder with a chat template, or a Hugging Face id.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(callback=folder_to_write, help="Folder for conversations.jsonl; an existing file is continued."),
    ],
    tokens: Annotated[
        int,
        typer.Option(min=1, max=10**12, help="Stop at this number of generated tokens, earlier runs included."),
    ] = 600_000,
    questions: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help='Answer these prompts first: a JSON Lines file with "text" or "user", and optionally "kind" and '
            '"language".',
        ),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0.01, max=MOST_MINUTES, help="Stop after this time at the latest.")
    ] = None,
    engine: Annotated[EngineName, typer.Option(help="Engine that serves the target.")] = "vllm",
    offline: Annotated[
        bool,
        typer.Option("--offline", help="Run the engine in one process (vllm only), which is faster on a CPU."),
    ] = False,
    url: Annotated[
        str | None, typer.Option(callback=address, help="Use this running server of the target, and start none.")
    ] = None,
    concurrency: Annotated[
        int, typer.Option(min=1, max=MOST_REQUESTS, help="Number of concurrent conversations.")
    ] = 32,
    answer_tokens: Annotated[
        int, typer.Option(min=1, max=MOST_TOKENS, help="Largest number of tokens per answer.")
    ] = 512,
    temperature: Annotated[
        float, typer.Option(parser=TEMPERATURE, help="Sampling temperature of answers; 0 means greedy.")
    ] = 0.6,
    top_p: Annotated[
        float,
        typer.Option(
            min=0.001, max=1, help="Top-p of questions and answers; 1 switches it off, which is faster on a CPU."
        ),
    ] = 0.95,
    top_k: Annotated[int, typer.Option(min=0, max=MOST_TOKENS, help="Top-k of answers; 0 switches it off.")] = 20,
    server_arg: Annotated[
        list[str] | None,
        typer.Option(help="Add an argument to the server, as in --server-arg=--dtype=float32; may be repeated."),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(min=0, max=MOST_SEED, help="Seed of the openings and, without --offline, of sampling."),
    ] = 0,
) -> None:
    """Generate conversations with a chat model, to train a drafter for it (self-distillation).

    The target first answers --questions, if given: use prompts like those of your users. Then it continues user turns
    that begin with a few given words (questions, reasoning, code, other languages) or that ask about source code and
    texts, and answers them. Repetitions and near duplicates are left out, and token ids are kept as sampled.

    Conversations are appended one by one. Stop a run at any time and continue it with the same command. The default
    temperature, top-k and top-p are those of FastMTP (arXiv 2509.18362).

    Examples:
    ```
    mtpc distill --target runs/smollm2 --out runs/data

    # Run faster on a CPU.
    mtpc distill --target runs/smollm2 --out runs/data --offline --top-p 1

    # Answer your own prompts first.
    mtpc distill --target runs/smollm2 --out runs/data --questions my.jsonl

    # Use a running server.
    mtpc distill --target runs/smollm2 --out data --url http://127.0.0.1:8000
    ```
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
