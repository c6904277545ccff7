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
            help="The model to serve: a folder or a Hugging Face id. With --url, where the chat template for --prompts "
            "is.",
        ),
    ] = None,
    drafter: Annotated[
        Path | None, typer.Option(callback=model_folder, help="A drafter for it: a folder or a Hugging Face id.")
    ] = None,
    engine: Annotated[EngineName, typer.Option(help="The engine to measure.")] = "vllm",
    offline: Annotated[
        bool, typer.Option("--offline", help="Measure the engine alone in a process, without a server (vllm only).")
    ] = False,
    num_drafts: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_DRAFTS, help="Drafts in each step [default: those it was trained for]."),
    ] = None,
    ngram: Annotated[
        str | None,
        typer.Option(
            metavar="MIN-MAX:K",
            help="The engine's own n-gram drafter: K drafts where MIN to MAX tokens match "
            "[default: 2-4:5 of vLLM, 1-7:11 of SGLang].",
        ),
    ] = None,
    no_ngram: Annotated[
        bool, typer.Option("--no-ngram", help="Leave out the engine's own n-gram drafter: one server less.")
    ] = False,
    batch_sizes: Annotated[
        Sequence[int],
        typer.Option(metavar="1,2,...", parser=NumberList(Bounds(1, MOST_REQUESTS)), help="Requests at a time."),
    ] = (1, 2, 4, 8, 16),
    temperatures: Annotated[
        Sequence[float],
        typer.Option(metavar="0,1,...", parser=NumberList(TEMPERATURE), help="Of the sampling; 0 is greedy."),
    ] = (0, 1),
    max_tokens: Annotated[
        int, typer.Option(min=1, max=MOST_TOKENS, help="Tokens in each completion; of an answer to a chat, at most.")
    ] = 256,
    prompts: Annotated[
        Path,
        typer.Option(
            help='JSON Lines with the field "text", or "user" for the chat template of the target.',
            show_default="60 texts of this package, half of them code",
        ),
    ] = SHIPPED,
    rounds: Annotated[int, typer.Option(min=1, max=1000, help="Measurements of each point, all servers in turn.")] = 2,
    requests: Annotated[
        int, typer.Option(min=1, max=MOST_REQUESTS, help="Requests in each measurement, at least.")
    ] = 8,
    out: Annotated[Path, typer.Option(callback=folder_to_write, help="Where results and logs go.")] = Path(
        "runs/bench"
    ),
    draft_times: Annotated[
        bool, typer.Option(help="Time the drafting calls and their parts; nothing waits for the device.")
    ] = True,
    server_arg: Annotated[
        list[str] | None, typer.Option(help="An argument for all servers, as in --server-arg=--dtype=float32.")
    ] = None,
    drafter_arg: Annotated[
        list[str] | None, typer.Option(help="An argument for the server with the drafter alone.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(callback=address, help="A running server with the drafter; none is started then.")
    ] = None,
    baseline_url: Annotated[
        str | None, typer.Option(callback=address, help="A running server without, for --url.")
    ] = None,
) -> None:
    """Measure an engine without a drafter, with one, and with the n-gram drafter that it brings itself, side by side.

    Three servers (with --offline, three processes that each hold an engine and nothing else) are started with the same
    settings but for what drafts, and are measured in turn, so that a machine that slows down slows all. On a GPU they
    share its memory: give each a part, as in --server-arg=--gpu-memory-utilization=0.3 of vLLM. Only the server with
    the drafter loads this project's plugin; on a CPU above temperature 0 vLLM's n-gram drafter needs it, too.

    Reported are tokens/s, speed-up, the tokens that a step brings (those steps included in which nothing is drafted),
    marginal and conditional acceptance rates by position, the share of a step that drafting and each of its parts take
    and, at temperature 0, how many completions are the same. results.json, results.md and results.png are written.

    The engine's n-gram drafter, which needs no training, drafts what followed the text's last tokens where they stood
    before. SGLang's also learns from the answers to other requests; it is made to forget them before each measurement.

    Prompts of text are completed to the full length. What a user says to a chat model (the field "user") goes through
    the target's chat template, and answers end where the model ends them.

    Examples:
    mtpc bench --target weights/byte-target --drafter weights/byte-mtpc-hmm-n8

    mtpc bench --target weights/byte-target --drafter weights/byte-mtpc-hmm-n8 --batch-sizes 1 --temperatures 0

    mtpc bench --target weights/byte-target --drafter weights/byte-mtpc-hmm-n8 --offline

    mtpc bench --target weights/byte-target --drafter weights/byte-mtpc-hmm-n8 --ngram 5-8:8

    mtpc bench --target weights/byte-target --drafter weights/byte-mtpc-hmm-n8 --no-ngram

    mtpc bench --target runs/smollm2 --drafter runs/smollm2-fastmtp --prompts benchmarks/chat_prompts.jsonl

    mtpc bench --engine sglang --target weights/byte-target --drafter weights/byte-mtpc-hmm-n8 --temperatures 0

    mtpc bench --engine sglang --target weights/byte-target --drafter weights/byte-mtpc-hmm-n8
    --drafter-arg=--speculative-eagle-topk=4 --drafter-arg=--speculative-num-draft-tokens=16

    mtpc bench --url http://127.0.0.1:8000 --baseline-url http://127.0.0.1:8001
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
