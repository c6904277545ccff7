"""`mtpc bench`."""

from __future__ import annotations

from mtpc.lab.bench.settings import BenchOptions
from mtpc.lab.options.settings import with_settings


@with_settings
def bench(options: BenchOptions) -> None:
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
    from mtpc.lab.bench.command import run_benchmark
    from mtpc.lab.console import console

    run_benchmark(options, console())
