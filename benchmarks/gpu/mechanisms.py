"""Time, peak memory and number of operators of single mechanisms at serving sizes, on random inputs.

    python -m benchmarks.gpu.mechanisms [--device cuda] [--vocabulary 152000] [--batches 1,32] [--only NAME ...]

Time is the median of several calls; on CUDA it is measured between events.  Peak memory is what a call allocates in
addition to its arguments: the allocator counts it on CUDA, the profiler's trace on a CPU.  Operators are kernels on
CUDA, and on a CPU the operators that `tests.mtpc.parallel.trace` counts.

To measure another commit, put its plugins in front: `PYTHONPATH=../before/plugins python -m benchmarks.gpu.mechanisms`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from rich.console import Console
from torch import Tensor

from benchmarks.arguments import listed, one_sentence, output_file
from mtpc.draw import draw
from mtpc.errors import MTPCError
from mtpc.files import provenance
from mtpc.lab.table import Table
from mtpc.prompt_lookup.on_device import DeviceTexts, longest_matches
from tests.gpu.running import Figures, Run
from tests.gpu.timing import kernels
from tests.support.tiny_models import make_part

DRAFTS, VOCABULARY, BATCHES, TIMES = 7, 152_000, [1, 32], 5
ALL = 1 << 30  # SGLang's top-k of a request without top-k


class Size(NamedTuple):
    """Batch size, vocabulary size and device of a measurement."""

    batch: int
    vocabulary: int
    device: torch.device

    def logits(self, *positions: int) -> Tensor:
        """Return random logits, float32 [batch, *positions, vocabulary], rounded to bfloat16 so that some are equal."""
        return (3.0 * torch.randn(self.batch, *positions, self.vocabulary, device=self.device)).bfloat16().float()


def drawing(positions: int, size: Size) -> Callable[[], object]:
    """Return a call that samples a token at each position, one position after the other."""
    probs = size.logits(positions).softmax(-1)
    uniforms = torch.rand(size.batch, positions, dtype=torch.float64, device=size.device)
    return lambda: [draw(probs[:, at], uniforms[:, at]) for at in range(positions)]


def verification(size: Size, top_k: int = ALL, top_p: float = 1.0, min_p: float = 0.0) -> Callable[[], object]:
    """Return a call that verifies a chain by the core's rules in SGLang; SGLang's own verification is left out."""
    try:
        from sglang_mtpc import verify
    except ImportError as error:
        raise MTPCError(f"verification is measured where SGLang is installed: {error}") from error
    scope: Any = verify
    scope.get_parallel = lambda: SimpleNamespace(tp_group=SimpleNamespace(world_size=1))
    scope.get_exec = lambda: SimpleNamespace(kernel=SimpleNamespace(sampling_backend="pytorch"))
    scope.is_cuda = lambda: False
    rows, nodes, device = size.batch, DRAFTS + 1, size.device
    probs = size.logits(DRAFTS).softmax(-1)
    tokens = torch.randint(size.vocabulary, (rows, nodes), device=device)
    child = torch.arange(1, nodes + 1, device=device).repeat(rows, 1)
    child[:, -1] = -1
    built = SimpleNamespace(
        draft_token=tokens.flatten(),
        draft_token_num=nodes,
        retrieve_next_token=child,
        retrieve_next_sibling=torch.full_like(child, -1),
        draft_probs=probs,
        spec_steps=DRAFTS,
    )
    each = partial(torch.full, (rows,), device=device)
    info = SimpleNamespace(
        temperatures=each(0.7)[:, None],
        top_ks=each(top_k),
        top_ps=each(top_p),
        min_ps=each(min_p),
        need_top_k_sampling=top_k != ALL,
        need_top_p_sampling=top_p != 1.0,
        need_min_p_sampling=min_p > 0,
        is_all_greedy=False,
        sampling_seed=None,
        acc_additive_penalties=None,
        acc_scaling_penalties=None,
    )
    request = SimpleNamespace(sampling_params=SimpleNamespace(top_k=top_k))
    batch = SimpleNamespace(sampling_info=info, seq_lens=each(9), reqs=[request] * rows)
    output = SimpleNamespace(next_token_logits=size.logits(nodes).flatten(0, 1))
    return lambda: verify.sample_and_verify(lambda *_: None, built, batch, output)


def stating(circuit: str, rank: int, size: Size) -> Callable[[], object]:
    """Return a call that drafts with a parallel part on vLLM's Model Runner V2, and stores the draft distributions."""
    try:
        from vllm_mtpc.v2.speculator import Speculator
    except ImportError as error:
        raise MTPCError(f"stated draft distributions are measured where vLLM is installed: {error}") from error
    rows, made = size.batch, Speculator.__new__(Speculator)
    scope: Any = made
    with size.device:
        parallel = make_part(circuit, DRAFTS + 1, rank, 64, size.vocabulary).requires_grad_(False)
        scope.model, scope.copying = SimpleNamespace(parallel=parallel, with_head_inputs=lambda known: known), None
        scope.autoregressive_drafts, scope.parallel_drafts, scope.max_num_reqs = 0, DRAFTS, rows
        scope.states, scope.tokens = torch.randn(rows, 1, 64), torch.zeros(rows, 1, dtype=torch.int64)
        scope.positions, scope.temperature = torch.zeros(rows, dtype=torch.int64), torch.ones(rows)
        scope.seeds, scope.idx_mapping = torch.arange(rows), torch.arange(rows)
        scope.draft_tokens = torch.zeros(rows, DRAFTS, dtype=torch.int64)
        scope.slot_logits = torch.zeros(rows + 1, DRAFTS, size.vocabulary)
    return lambda: made._draft_parallel(rows)


def lookup(width: int, size: Size) -> Callable[[], object]:
    """Return a call that searches each request's longest match, in texts of up to ``width`` tokens."""
    rows, device = size.batch, size.device
    table = torch.randint(5000, (rows, width), dtype=torch.int32, device=device)
    lengths = torch.full((rows,), width - 7, dtype=torch.int32, device=device)
    return partial(longest_matches, DeviceTexts(table, torch.arange(rows, device=device), lengths), 16)


CASES: dict[str, Callable[[Size], Callable[[], object]]] = {
    "draw, one position": partial(drawing, 1),
    "draw, 7 positions": partial(drawing, DRAFTS),
    "verification, top-k 20": partial(verification, top_k=20),
    "verification, top-k 20, top-p 0.8": partial(verification, top_k=20, top_p=0.8),
    "verification, top-k 1000, top-p 0.8": partial(verification, top_k=1000, top_p=0.8),
    "verification, top-k 20, min-p 0.05": partial(verification, top_k=20, min_p=0.05),
    "verification, top-p 0.8": partial(verification, top_p=0.8),
    "verification, min-p 0.05": partial(verification, min_p=0.05),
    "stated draft distributions, FF": partial(stating, "ff", 1),
    "stated draft distributions, HMM, rank 8": partial(stating, "hmm", 8),
    "prompt lookup on the device, 4,096 tokens": partial(lookup, 1 << 12),
    "prompt lookup on the device, 65,536 tokens": partial(lookup, 1 << 16),
}


def milliseconds(call: Callable[[], object], device: torch.device, times: int) -> float:
    """Return the median milliseconds of several calls, after one warm-up call."""
    call()
    found = []
    for _ in range(times):
        if device.type == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            torch.cuda.synchronize()
            found.append(start.elapsed_time(end))
        else:
            begun = time.perf_counter()
            call()
            found.append(1e3 * (time.perf_counter() - begun))
    return median(found)


def peak_bytes(call: Callable[[], object], device: torch.device) -> int:
    """Return the bytes that a call allocates at its peak."""
    if device.type == "cuda":
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


@torch.inference_mode()
def measured(name: str, size: Size, times: int) -> dict[str, Any]:
    """Measure one mechanism at one size."""
    torch.manual_seed(0)
    call = CASES[name](size)
    return {
        "name": name,
        "batch": size.batch,
        "ms": milliseconds(call, size.device, times),
        "peak_bytes": peak_bytes(call, size.device),
        "operators": kernels(call, size.device),
    }


def table(rows: Sequence[dict[str, Any]], title: str) -> Table:
    """Return a table with a row for each mechanism and batch size."""
    cells = [
        [row["name"], str(row["batch"]), f"{row['ms']:.3g}", f"{row['peak_bytes'] / 2**20:.1f}", str(row["operators"])]
        for row in rows
    ]
    return Table(title, ["mechanism", "batch", "ms", "peak MiB", "operators"], cells)


def costs(*parts: str) -> Callable[[Run], str]:
    """Row of a card: measure the mechanisms whose names contain one of ``parts``; on a CPU with a small vocabulary."""

    def row(run: Run) -> str:
        vocabulary, batches = (VOCABULARY, BATCHES) if run.on_gpu else (2000, [1])
        found: Figures = []
        for name in (name for name in CASES if any(part in name for part in parts)):
            for batch in batches:
                found.append(measured(name, Size(batch, vocabulary, run.device), TIMES))
                run.keep(found)
        return "; ".join(f"{one['name']}, batch {one['batch']}: {one['ms']:.3g} ms" for one in found)

    return row


def of_rows(rows: Mapping[str, Figures]) -> Table:
    """Return the table of a card's rows."""
    return table([one for figures in rows.values() for one in figures], "single mechanisms")


@one_sentence
def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--device", choices=("cpu", "cuda"), default="cpu", help="device to measure (default: %(default)s)")
    add("--vocabulary", type=int, default=VOCABULARY, metavar="V", help="vocabulary size (default: %(default)s)")
    batches = "batch sizes, comma-separated (default: 1,32)"
    add("--batches", type=listed(int), default=BATCHES, metavar="B,B", help=batches)
    add("--only", nargs="+", metavar="NAME", help="measure mechanisms whose names contain one of these (default: all)")
    add("--times", type=int, default=TIMES, help="number of timed calls (default: %(default)s)")
    add("--threads", type=int, default=1, help="CPU threads of an operator (default: %(default)s)")
    add("--out", type=output_file, metavar="FILE.json", help="write rows and provenance to this JSON file")
    chosen = parser.parse_args(arguments)
    names = [name for name in CASES if chosen.only is None or any(part in name for part in chosen.only)]
    if not names:
        raise MTPCError(f"--only {' '.join(chosen.only)} matches no mechanism. Mechanisms: {'; '.join(CASES)}.")
    torch.set_num_threads(chosen.threads)
    sizes = [Size(batch, chosen.vocabulary, torch.device(chosen.device)) for batch in chosen.batches]
    rows = [measured(name, size, chosen.times) for name in names for size in sizes]
    found = table(rows, f"{chosen.vocabulary} tokens, K = {DRAFTS}, {chosen.device}, torch {torch.__version__}")
    Console().print(found.to_markdown(), markup=False, soft_wrap=True)
    if chosen.out is not None:
        document = {"rows": rows, "vocabulary": chosen.vocabulary, "device": chosen.device}
        chosen.out.write_text(json.dumps({**document, "provenance": provenance.collect()}, indent=1))


if __name__ == "__main__":
    sys.exit(main())
