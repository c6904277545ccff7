"""Accuracy of the model: computed against measured steps, on a CPU and in publications on GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from benchmarks.at_scale.drafters import FASTMTP, Drafter, break_even
from benchmarks.at_scale.machines import A10, BYTES_TARGET, CPU, H100, LLAMA8, MIMO, SMOLLM2
from benchmarks.at_scale.step import Batch
from mtpc.draft_length.cost import StepCost
from mtpc.lab.table import Table

CONTEXT = 256  # tokens of a prompt and half its output
ALONE = 1 / 83.1  # docs/measurements.md of 983b2a5, FastMTP: seconds of a step without a drafter
UNIT = ALONE / 0.89  # the same, Copying: of a server that can draft; the unit of COSTS
COSTS = StepCost(  # measured at the time of these tables
    plain=((1, 1.0), (16, 2.2)), verifying=((2, 1.12), (11, 1.45), (64, 4.41)), drafting=((1, 0.23), (16, 1.0))
)
# The same, FastMTP: K, rows of the head, acceptance length, speedup. One request reads int8 rows, hence half as many.
SERVED = (
    ("1 draft, all tokens", 1, None, 1.70, 1.33),
    ("1 draft, 8,192 tokens", 1, 4096, 1.70, 1.35),
    ("2 drafts, all tokens", 2, None, 2.15, 1.28),
    ("2 drafts, 8,192 tokens", 2, 4096, 2.13, 1.46),
    ("3 drafts, all tokens", 3, None, 2.45, 1.30),
    ("3 drafts, 8,192 tokens", 3, 4096, 2.45, 1.59),
    ("3 drafts, 16,384 tokens", 3, 8192, 2.45, 1.55),
    ("3 drafts, 32,768 tokens", 3, 16384, 2.45, 1.51),
)
# FastMTP paper (arXiv:2509.18362), one A10: tables 1 (means) and 2.  K, rows, acceptance length, speedup.
PAPER = (
    ("table 1, all tokens", 1, None, 1.81, 1.40),
    ("table 1, all tokens", 2, None, 2.37, 1.71),
    ("table 1, all tokens", 3, None, 2.73, 1.81),
    ("table 1, 32k or 16k tokens", 1, 32768, 1.79, 1.46),
    ("table 1, 32k or 16k tokens", 2, 32768, 2.33, 1.85),
    ("table 1, 32k or 16k tokens", 3, 32768, 2.66, 2.03),
    ("table 2, MT-Bench, 8k", 3, 8192, 2.426, 1.927),
    ("table 2, MT-Bench, 16k", 3, 16384, 2.519, 1.987),
    ("table 2, MT-Bench, 32k", 3, 32768, 2.622, 2.028),
    ("table 2, MT-Bench, 64k", 3, 65536, 2.677, 1.969),
    ("table 2, C-Eval, all tokens", 3, None, 2.551, 1.719),
    ("table 2, C-Eval, 8k", 3, 8192, 2.448, 1.961),
    ("table 2, C-Eval, 16k", 3, 16384, 2.525, 1.990),
    ("table 2, C-Eval, 32k", 3, 32768, 2.549, 1.967),
    ("table 2, C-Eval, 64k", 3, 65536, 2.550, 1.900),
)
# EAGLE-3 paper (arXiv:2503.01840), table 3: speedups of SGLang on one H100, Llama-3.1-8B, MT-Bench, K = 3.
BATCHES = (2, 4, 8, 16, 24, 32, 48, 56, 64)
CHAINS = (
    (Drafter("EAGLE", 3, depth=1), (1.40, 1.38, 1.23, 1.02, 0.93, 0.94, 0.88, 0.99, 0.99)),
    (Drafter("EAGLE-3", 3, depth=1, rows=32000), (1.81, 1.82, 1.62, 1.48, 1.39, 1.32, 1.38, 1.34, 1.38)),
)
# Gumiho paper (arXiv:2503.10135), Vicuna-7B on one MI250, MT-bench: table 3, ms of a step's parts, and table 1.
AUTOREGRESSIVE, ROUND, VERIFIED, VICUNA_LAYERS, GUMIHO = (
    (2.80, 3.46),
    (2.80, 3.46, 2.02, 3.41, 6.11),
    45.50,
    32,
    (5.29, 3.15),
)


class Row(NamedTuple):
    """A measured figure with the computed one.

    Attributes:
        what: The quantity.
        measured: Its measured value.
        computed: Its value by the model.
        fitted: Whether figures of the machine were fitted to it.
    """

    what: str
    measured: float
    computed: float
    fitted: bool = False

    @property
    def error(self) -> float:
        """Error of the computed value, relative to the measured one."""
        return self.computed / self.measured - 1


def on_a_cpu() -> list[Row]:
    """Return milliseconds of steps, as measured by `mtpc plan` and a benchmark of FastMTP."""
    one, many = Batch(1, CONTEXT), Batch(16, CONTEXT)
    short, rounded = replace(FASTMTP, rows=8192), replace(FASTMTP, rows=4096)
    computed = [
        ("a step, 1 request", ALONE / UNIT, SMOLLM2.step(CPU, one), True),
        ("a step that could draft, 16 requests", COSTS.step(16, 0), SMOLLM2.step(CPU, many) + CPU.drafting, True),
        ("verifying 1 draft", COSTS.step(1, 1), SMOLLM2.step(CPU, one, 1), False),
        ("verifying 10 drafts", COSTS.step(1, 10), SMOLLM2.step(CPU, one, 10), False),
        ("verifying 3 drafts of 16 requests", COSTS.step(16, 48), SMOLLM2.step(CPU, many, 3), True),
        ("3 drafts, 8,192 tokens", COSTS.draft(1), rounded.seconds(CPU, SMOLLM2, one), True),
        ("3 drafts of 16 requests, 8,192 tokens", COSTS.draft(16), short.seconds(CPU, SMOLLM2, many), False),
    ]
    rows = [Row(what, 1e3 * UNIT * measured, 1e3 * seconds, fitted) for what, measured, seconds, fitted in computed]
    for what, drafts, size, length, speedup in SERVED:
        drafter = replace(FASTMTP, drafts=drafts, rows=size)
        seconds = SMOLLM2.step(CPU, one, drafts) + drafter.seconds(CPU, SMOLLM2, one)
        rows.append(Row(f"whole step, {what}", 1e3 * ALONE * length / speedup, 1e3 * seconds))
    products = BYTES_TARGET.layers * CPU.product(BYTES_TARGET.shape.block, 8)
    return [*rows, Row("byte model, 8 tokens, products alone", 2.6, 1e3 * products)]


def of_the_paper() -> list[Row]:
    """Return speedups of FastMTP on an A10 at the published acceptance lengths, and figures of Gumiho on an MI250."""
    one = Batch(1)
    rows = [Row("tokens/s without a drafter", 31.55, 1 / MIMO.step(A10, one), True)]
    for number, (what, drafts, size, length, speedup) in enumerate(PAPER):
        computed = length / break_even(A10, MIMO, replace(FASTMTP, drafts=drafts, rows=size), one)
        rows.append(Row(f"{what}, K = {drafts}", speedup, computed, number == 0))
    layer, length = VERIFIED / VICUNA_LAYERS, GUMIHO[0]
    rows += [Row(f"Gumiho, draft step {i}, ms: two layers", ms, 2 * layer) for i, ms in enumerate(AUTOREGRESSIVE, 1)]
    speedup = length * VERIFIED / (VERIFIED + sum(ROUND))
    return [*rows, Row("Gumiho, a tree verified in the time of one token", GUMIHO[1], speedup)]


def on_h100s() -> list[Row]:
    """Return tokens/s of Llama-3.1-8B without a drafter, by SGLang's documentation and sgl-project/sglang#3124."""
    steps = ((158.34, 1), (450.0, 8))
    return [
        Row(f"tokens/s, TP {ranks}", measured, 1 / LLAMA8.step(H100, Batch(1, ranks=ranks)), True)
        for measured, ranks in steps
    ]


def implied() -> list[list[float]]:
    """Return acceptance lengths that published speedups imply, by drafter and batch size; they should be constant."""
    return [
        [
            speedup * break_even(H100, LLAMA8, drafter, Batch(size))
            for size, speedup in zip(BATCHES, speedups, strict=True)
        ]
        for drafter, speedups in CHAINS
    ]


def tables() -> list[Table]:
    """Return all comparisons as tables."""
    columns = ["quantity", "measured", "computed", "error"]
    named = {
        "SmolLM2 and the byte-level model on two cores of an AMD EPYC, ms": on_a_cpu(),
        "Llama-3.1-8B on H100s with SGLang, batch size 1": on_h100s(),
        "Published speedups at published acceptance lengths": of_the_paper(),
    }
    found = [Table(title, columns, [_cells(row) for row in rows]) for title, rows in named.items()]
    lengths = [
        [drafter.name, *(f"{length:.2f}" for length in row)]
        for (drafter, _), row in zip(CHAINS, implied(), strict=True)
    ]
    title = "Acceptance lengths that table 3 of the EAGLE-3 paper implies, by batch size"
    return [*found, Table(title, ["drafter", *map(str, BATCHES)], lengths)]


def _cells(row: Row) -> list[str]:
    error = "fitted" if row.fitted else f"{100 * row.error:+.0f}%"
    return [row.what, f"{row.measured:.2f}", f"{row.computed:.2f}", error]
