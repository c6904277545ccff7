"""Tables of docs/at-scale.md: speedups at known acceptance lengths, and the batch sizes from which drafting loses."""

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

# Acceptance lengths by K: table 1 of the FastMTP paper (MiMo-7B, means), and this project's SmolLM2 on Spec-Bench.
PAPER_ALL, PAPER, SMOLLM2 = (1.81, 2.37, 2.73), (1.79, 2.33, 2.66), (1.39, 1.55, 1.62)
PAPER_GUMIHO = {MIMO.name: 4.46, LLAMA70.name: 4.35}  # Gumiho paper, table 1, means at T = 0: Llama-3 8B and 70B, trees
Ratio = Callable[[int, int], float]  # break-even length by requests, and draft tokens of each


def gains(context: int) -> Table:
    """Return speedups with the best K at acceptance lengths that were published, or measured with SmolLM2."""
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
        f"Speedup with the best number of draft tokens in brackets, {context:,} tokens of context per request",
        ["target", "TP", "drafter", *map(str, BATCHES)],
        rows,
    )


def computed(target: Target, drafter: Drafter, ranks: int, context: int) -> Ratio:
    """Return the break-even acceptance length as a function of requests and draft tokens."""

    def ratio(requests: int, drafts: int) -> float:
        return break_even(H100, target, replace(drafter, drafts=drafts), Batch(requests, context, ranks))

    return ratio


def best(ratio: Ratio, requests: int, lengths: Sequence[float]) -> tuple[int, float]:
    """Return the K with the largest speedup, and this speedup; K is 0 if no draft token is worth it."""
    speedups = [1.0, *(length / ratio(requests, drafts) for drafts, length in enumerate(lengths, 1))]
    drafts = max(range(len(speedups)), key=speedups.__getitem__)
    return drafts, speedups[drafts]


def best_cells(ratio: Ratio, lengths: Sequence[float]) -> list[str]:
    """Return the best speedups by batch size."""
    cells = []
    for size in BATCHES:
        drafts, speedup = best(ratio, size, lengths)
        cells.append("-" if isnan(ratio(size, len(lengths))) else f"{speedup:.2f} ({drafts})")
    return cells


def beyond(ratio: Ratio, length: float, drafts: int) -> str:
    """Return the first batch size at which K = ``drafts`` is slower than no drafts; "-" if none fits up to 1024."""
    for size in range(1, 1025):
        least = ratio(size, drafts)
        if isnan(least):
            break
        if least > length:
            return str(size)
    return "-"


def losing(context: int) -> Table:
    """Return the first batch size at which drafting is slower than no drafts, by target, ranks and K."""
    rows = []
    for target, ranks in LAYOUTS:
        ratio = computed(target, SHORT, ranks, context)
        if not isnan(ratio(1, 1)):
            lengths = [beyond(ratio, accepted[k - 1], k) for accepted in (PAPER, SMOLLM2) for k in (1, 2, 3)]
            rows.append([target.name, str(ranks), *lengths])
    columns = [f"{whose}, K = {k}" for whose in ("FastMTP paper", "SmolLM2") for k in (1, 2, 3)]
    title = f"First batch size at which drafting loses: {SHORT.name}, {context:,} tokens of context per request"
    return Table(title, ["target", "TP", *columns], rows)


def of_measured(cost: StepCost, accepted: Sequence[float]) -> Table:
    """Return break-even acceptance lengths and the best K from measured step costs.

    Args:
        cost: Measured costs of decoding steps.
        accepted: Marginal acceptance rate of each draft token.
    """

    def ratio(requests: int, drafts: int) -> float:
        drafted = cost.step(requests, requests * drafts) + cost.draft(requests)
        return drafted / cost.step(requests, 0)

    lengths = [1 + sum(accepted[: drafts + 1]) for drafts in range(len(accepted))]
    rows = []
    for size in BATCHES:
        drafts, speedup = best(ratio, size, lengths)
        evens = (cell(ratio(size, k)) for k in range(1, len(lengths) + 1))
        rows.append([str(size), *evens, str(drafts), f"{speedup:.2f}"])
    columns = ["batch", *(f"break-even, K = {k}" for k in range(1, len(lengths) + 1)), "best K", "speedup"]
    return Table("Break-even acceptance length and speedup by measured step costs", columns, rows)
