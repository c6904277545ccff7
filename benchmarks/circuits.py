"""Time and peak memory of every circuit operation.

    python benchmarks/circuits.py [--device cuda] [--windows 8,16] [--ranks 1,16] [--batches 1,16] [--out FILE.json]

Time is the wall time of the fastest of 20 calls, because other processes disturb it least.  Memory is the peak of what
a call allocates in addition to its arguments.  On CUDA it is counted by the allocator.  On a CPU it is the largest sum
of live allocations in the profiler's trace.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from mtpc.circuits import CIRCUITS, Circuit, CircuitParams, build_circuit, temper
from mtpc.files import provenance

REPEATS = 20
SEED = 0


def random_params(circuit: Circuit, batch: int, vocab: int, device: str) -> CircuitParams:
    """Return random normalized parameters: leaves [B, n, R, V] and the circuit's sums."""

    def one(*shape: int) -> torch.Tensor:
        return torch.log_softmax(torch.randn(batch, *shape, device=device), -1)

    return CircuitParams(one(circuit.window, circuit.rank, vocab), tuple(one(*s) for s in circuit.sum_shapes()))


def operations(circuit: Circuit, batch: int, vocab: int, device: str) -> dict[str, Callable[[], object]]:
    """Return every operation of a circuit as a function without arguments, by name."""
    params = random_params(circuit, batch, vocab, device)
    x = torch.randint(vocab, (batch, circuit.window), device=device)  # [B, n]
    noise = torch.rand(batch, circuit.window, device=device)
    temperature = torch.full((batch,), 0.7, device=device)
    first = x[:, 0]
    return {
        "log_prob": lambda: circuit.log_prob(params, x),
        "prefix_log_probs": lambda: circuit.prefix_log_probs(params, x),
        "conditionals": lambda: circuit.conditionals(params, x),
        "condition": lambda: circuit.condition(params, first),
        "sample": lambda: circuit.sample(params, noise),
        "greedy": lambda: circuit.greedy(params, first),
        "temper": lambda: temper(params, temperature),
    }


def seconds(call: Callable[[], object], device: str) -> float:
    """Return the wall time of the fastest call."""
    times = []
    for repeat in range(REPEATS + 3):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        if repeat >= 3:  # the first calls warm up
            times.append(time.perf_counter() - start)
    return min(times)


def peak_bytes(call: Callable[[], object], device: str) -> int:
    """Return the bytes that a call allocates at its peak."""
    if device == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        kept = call()
    live = itertools.accumulate(event[1] for event in sorted(allocations(profiler)))
    del kept
    return max(live, default=0)


def allocations(profiler: torch.profiler.profile) -> list[tuple[int, int]]:
    """Return the time in ns and the bytes of every allocation in a profile; freed bytes are negative."""
    recorded: Any = profiler.profiler  # the profiler's public events do not show what was freed
    events = recorded.kineto_results.events()
    return [(event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]"]


def measure(
    device: str, windows: list[int], ranks: list[int], batches: list[int], vocab: int
) -> list[dict[str, object]]:
    """Return one row for each circuit, window, rank, batch size and operation."""
    rows: list[dict[str, object]] = []
    for kind, window, rank, batch in itertools.product(CIRCUITS, windows, ranks, batches):
        if kind == "ff" and rank != 1:
            continue
        circuit = build_circuit(kind, window, rank)
        circuit.to(device)
        for name, call in operations(circuit, batch, vocab, device).items():
            with torch.inference_mode():
                row = {"circuit": kind, "window": window, "rank": rank, "batch": batch, "operation": name}
                rows.append({**row, "seconds": seconds(call, device), "peak_bytes": peak_bytes(call, device)})
    return rows


def table(rows: list[dict[str, object]]) -> Table:
    """Return a table with a row for each circuit and a column for each operation: microseconds and KiB."""
    names = list(dict.fromkeys(str(row["operation"]) for row in rows))
    shown = Table(title="microseconds / peak KiB")
    for column in ("circuit", "n", "R", "B", *names):
        shown.add_column(column, justify="right")
    for key, group in itertools.groupby(
        rows, lambda row: tuple(row[k] for k in ("circuit", "window", "rank", "batch"))
    ):
        cells = [f"{float(r['seconds']) * 1e6:.0f} / {int(r['peak_bytes']) // 1024}" for r in group]  # type: ignore[arg-type, call-overload]
        shown.add_row(*map(str, key), *cells)
    return shown


def main() -> None:
    """Measure, print the table and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--device", choices=("cpu", "cuda"), default="cpu", help="device to measure (default: %(default)s)")
    add("--vocab", type=int, default=258, help="vocabulary size, V (default: %(default)s)")
    add("--threads", type=int, default=1, help="CPU threads of an operation (default: %(default)s)")
    for name, default, meaning in (
        ("windows", "8,16", "window sizes, n"),
        ("ranks", "1,16", "ranks, R"),
        ("batches", "1,16", "batch sizes, B"),
    ):
        help_text = f"{meaning}, comma-separated (default: %(default)s)"
        add(f"--{name}", type=lambda text: [int(n) for n in text.split(",")], default=default, help=help_text)
    add("--out", type=Path, help="write results to this JSON file")
    arguments = parser.parse_args()
    torch.manual_seed(SEED)
    torch.set_num_threads(arguments.threads)
    rows = measure(arguments.device, arguments.windows, arguments.ranks, arguments.batches, arguments.vocab)
    Console(width=150).print(table(rows))
    if arguments.out:
        facts = provenance.collect(
            device=arguments.device, vocab=arguments.vocab, seed=SEED, threads=torch.get_num_threads()
        )
        arguments.out.write_text(json.dumps({"provenance": facts, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
