"""Tables of the page on scale: what drafting gains by acceptance lengths that are known, and from where it loses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isnan

from benchmarks.at_scale.costs import BATCHES, LAYOUTS, SHORT, SHOWN, along, cell
from benchmarks.at_scale.drafters import FASTMTP, GUMIHO, Drafter, break_even
from benchmarks.at_scale.machines import H100, LLAMA70, MIMO
from benchmarks.at_scale.step import Batch, Target
from mtpc.draft_length.cost import StepCost
from mtpc.lab.table import Table

# Acceptance lengths by K: the FastMTP paper's table 1 (MiMo-7B, means), and this project's SmolLM2 on Spec-Bench.
PAPER_ALL, PAPER, SMOLLM2 = (1.81, 2.37, 2.73), (1.79, 2.33, 2.66), (1.39, 1.55, 1.62)
PAPER_GUMIHO = {MIMO.name: 4.46, LLAMA70.name: 4.35}  # Gumiho paper, table 1, means at T = 0: Llama-3 8B and 70B, trees
Ratio = Callable[[int, int], float]  # by requests and drafts of each


def gains(context: int) -> Table:
    """Speed-ups with the best K for lengths that were published or measured here."""
    kinds = (
        ("FastMTP", FASTMTP, PAPER_ALL),
        (SHORT.name, SHORT, PAPER),
        (f"{SHORT.name}, acceptance of SmolLM2", SHORT, SMOLLM2),
    )
    rows = []
    for target, ranks in SHOWN:
        for name, drafter, lengths in kinds:
            rows.append(
                [target.name, str(ranks), name, *best_cells(computed(target, drafter, ranks, context), lengths)]
            )
        speedups = [PAPER_GUMIHO[target.name] / each for each in along(H100, target, GUMIHO, ranks, context)]
        rows.append([target.name, str(ranks), "Gumiho, at most", *map(cell, speedups)])
    return Table(
        f"Speed-up with the number of drafts that pays best, in brackets; {context:,} tokens behind each request",
        ["target", "TP", "drafter", *map(str, BATCHES)],
        rows,
    )


def computed(target: Target, drafter: Drafter, ranks: int, context: int) -> Ratio:
    """The break-even length with any number of drafts."""

    def ratio(requests: int, drafts: int) -> float:
        return break_even(H100, target, replace(drafter, drafts=drafts), Batch(requests, context, ranks))

    return ratio


def best(ratio: Ratio, requests: int, lengths: Sequence[float]) -> tuple[int, float]:
    """The K that pays best, 0 where none does, and its speed-up."""
    speedups = [1.0, *(length / ratio(requests, drafts) for drafts, length in enumerate(lengths, 1))]
    drafts = max(range(len(speedups)), key=speedups.__getitem__)
    return drafts, speedups[drafts]


def best_cells(ratio: Ratio, lengths: Sequence[float]) -> list[str]:
    """By batch."""
    cells = []
    for size in BATCHES:
        drafts, speedup = best(ratio, size, lengths)
        cells.append("-" if isnan(ratio(size, len(lengths))) else f"{speedup:.2f} ({drafts})")
    return cells


def beyond(ratio: Ratio, length: float, drafts: int) -> str:
    """The first batch at which so many drafts cost more than they bring; a hyphen: none that fits, up to 1024."""
    for size in range(1, 1025):
        least = ratio(size, drafts)
        if isnan(least):
            break
        if least > length:
            return str(size)
    return "-"


def losing(context: int) -> Table:
    """From which batch on drafting costs more than it brings."""
    rows = []
    for target, ranks in LAYOUTS:
        ratio = computed(target, SHORT, ranks, context)
        if not isnan(ratio(1, 1)):
            lengths = [beyond(ratio, accepted[k - 1], k) for accepted in (PAPER, SMOLLM2) for k in (1, 2, 3)]
            rows.append([target.name, str(ranks), *lengths])
    columns = [f"{whose}, K = {k}" for whose in ("paper", "SmolLM2") for k in (1, 2, 3)]
    title = f"The first batch at which drafting loses: {SHORT.name}, {context:,} tokens behind each request"
    return Table(title, ["target", "TP", *columns], rows)


def of_measured(cost: StepCost, accepted: Sequence[float]) -> Table:
    """The same where steps were measured.  accepted: chances of each draft with all before it."""

    def ratio(requests: int, drafts: int) -> float:
        drafted = cost.step(requests, requests * drafts) + cost.draft(requests)
        return drafted / cost.step(requests, 0)

    lengths = [1 + sum(accepted[: drafts + 1]) for drafts in range(len(accepted))]
    rows = []
    for size in BATCHES:
        drafts, speedup = best(ratio, size, lengths)
        evens = (cell(ratio(size, k)) for k in range(1, len(lengths) + 1))
        rows.append([str(size), *evens, str(drafts), f"{speedup:.2f}"])
    columns = ["batch", *(f"break-even, K = {k}" for k in range(1, len(lengths) + 1)), "best K", "speed-up"]
    return Table("With the steps that were measured", columns, rows)
