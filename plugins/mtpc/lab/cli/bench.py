"""`mtpc bench`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from mtpc.lab.options.names import EngineName, address
from mtpc.lab.options.numbers import MOST_DRAFTS, MOST_REQUESTS, MOST_TOKENS, TEMPERATURE, Bounds, NumberList
from mtpc.lab.options.paths import folder_to_write, model_folder
from mtpc.lab.text.prompts import SHIPPED


def bench(
    target: Annotated[
        Path | None,
        typer.Option(
            callback=model_folder,
            help="Target to serve: a folder or a Hugging Face id. With --url, the folder with its chat template.",
        ),
    ] = None,
    drafter: Annotated[
        Path | None,
        typer.Option(callback=model_folder, help="Drafter checkpoint to serve: a folder or a Hugging Face id."),
    ] = None,
    engine: Annotated[EngineName, typer.Option(help="Engine to measure.")] = "vllm",
    offline: Annotated[
        bool, typer.Option("--offline", help="Measure the engine in one process, without a server (vllm only).")
    ] = False,
    num_drafts: Annotated[
        int | None,
        typer.Option(
            min=1, max=MOST_DRAFTS, help="Draft tokens per decoding step, K [default: as the drafter was trained]."
        ),
    ] = None,
    ngram: Annotated[
        str | None,
        typer.Option(
            metavar="MIN-MAX:K",
            help="Setting of the engine's own n-gram drafter: K draft tokens where MIN to MAX tokens match "
            "[default: 2-4:5 for vLLM, 1-7:11 for SGLang].",
        ),
    ] = None,
    no_ngram: Annotated[
        bool, typer.Option("--no-ngram", help="Leave out the engine's own n-gram drafter, which is one server less.")
    ] = False,
    batch_sizes: Annotated[
        Sequence[int],
        typer.Option(
            metavar="1,2,...",
            parser=NumberList(Bounds(1, MOST_REQUESTS)),
            help="Batch sizes to measure: numbers of concurrent requests.",
        ),
    ] = (1, 2, 4, 8, 16),
    temperatures: Annotated[
        Sequence[float],
        typer.Option(
            metavar="0,1,...", parser=NumberList(TEMPERATURE), help="Sampling temperatures to measure; 0 means greedy."
        ),
    ] = (0, 1),
    max_tokens: Annotated[
        int,
        typer.Option(min=1, max=MOST_TOKENS, help="Tokens per completion; for chat prompts, the largest number."),
    ] = 256,
    prompts: Annotated[
        Path,
        typer.Option(
            help='JSON Lines file of prompts: "text", or "user" for messages that use the target\'s chat template.',
            show_default="60 prompts of this package, half of them code",
        ),
    ] = SHIPPED,
    rounds: Annotated[
        int, typer.Option(min=1, max=1000, help="Measurements of each point; the servers take turns in each round.")
    ] = 2,
    requests: Annotated[
        int, typer.Option(min=1, max=MOST_REQUESTS, help="Minimum number of requests per measurement.")
    ] = 8,
    out: Annotated[Path, typer.Option(callback=folder_to_write, help="Folder for results and server logs.")] = Path(
        "runs/bench"
    ),
    draft_times: Annotated[
        bool, typer.Option(help="Time drafting and its parts, without synchronizing the device.")
    ] = True,
    server_arg: Annotated[
        list[str] | None,
        typer.Option(help="Add an argument to all servers, as in --server-arg=--dtype=float32; may be repeated."),
    ] = None,
    drafter_arg: Annotated[
        list[str] | None,
        typer.Option(help="Add an argument only to the server with the drafter; may be repeated."),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(callback=address, help="Measure this running server with the drafter, and start none."),
    ] = None,
    baseline_url: Annotated[
        str | None, typer.Option(callback=address, help="Running server without a drafter, to compare --url with.")
    ] = None,
) -> None:
    """Measure throughput and acceptance without a drafter, with yours, and with the engine's own n-gram drafter.

    The command starts three servers (three processes with --offline) that differ only in the drafter. It measures them
    in turn, so that a slower machine slows down all of them. It prints tokens/s, speedup, acceptance length, acceptance
    rates by position and the share of time spent on drafting. At temperature 0 it also prints the share of equal
    outputs. The same figures are written to results.json, results.md and results.png.

    On a GPU the servers share its memory: give each a part, for vLLM with --server-arg=--gpu-memory-utilization=0.3.
    Only the server with the drafter loads this project's plugin. On a CPU above temperature 0, vLLM's n-gram drafter
    needs it as well.

    The n-gram drafter needs no training: it proposes the tokens that followed an earlier occurrence of the last tokens.
    SGLang's also uses the outputs of other requests, which are cleared before each measurement.

    Prompts with "text" are completed to the full length. Prompts with "user" use the target's chat template, and their
    outputs end where the model ends them.

    Examples:
    ```
    # Measure all batch sizes and temperatures of the included byte-level model.
    mtpc bench --target weights/byte-target --drafter weights/byte-mtpc-hmm-n8

    # Measure vLLM in one process, without a server.
    mtpc bench --target runs/smollm2 --drafter runs/fastmtp --offline

    # Measure greedy decoding only.
    mtpc bench --target runs/smollm2 --drafter runs/fastmtp --temperatures 0

    # Measure SGLang.
    mtpc bench --engine sglang --target runs/smollm2 --drafter runs/fastmtp

    # Use your own prompts.
    mtpc bench --target runs/smollm2 --drafter runs/fastmtp --prompts my.jsonl

    # Choose the engine's n-gram drafter: 8 draft tokens where 5 to 8 match.
    mtpc bench --target runs/smollm2 --drafter runs/fastmtp --ngram 5-8:8

    # Measure two running servers, with a drafter and without.
    mtpc bench --url http://127.0.0.1:8000 --baseline-url http://127.0.0.1:8001
    ```
    """
    from mtpc.lab.bench.command import BenchOptions, run_benchmark
    from mtpc.lab.bench.run import BenchPlan
    from mtpc.lab.console import console
    from mtpc.lab.servers.ngram import Ngram

    plan = BenchPlan(
        batch_sizes=tuple(batch_sizes),
        temperatures=tuple(temperatures),
        max_tokens=max_tokens,
        rounds=rounds,
        requests=requests,
    )
    request = BenchOptions(
        engine=engine,
        offline=offline,
        target=target,
        drafter=drafter,
        num_drafts=num_drafts,
        ngram=None if ngram is None else Ngram.parse(ngram),
        no_ngram=no_ngram,
        url=url,
        baseline_url=baseline_url,
        server_arguments=tuple(server_arg or ()),
        drafter_arguments=tuple(drafter_arg or ()),
        draft_times=draft_times,
        prompts=prompts,
        out=out,
    )
    run_benchmark(request, plan, console())
