r"""Measure the floating-point operations per second of a training, relative to plain matrix products of the device.

    python -m benchmarks.training_speed train fastmtp --target runs/smollm2 --data runs/distilled --out runs/fastmtp \
        --minutes 2 --questions 0

The arguments are those of `mtpc`; the training is a real one, and its checkpoint is written.
`torch.utils.flop_counter` counts the products of the forward and backward passes and of the optimizer.
The plain product is the fastest of several of two square matrices, in each dtype.
Tokens/s are those of whole conversations, questions included.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.arguments import one_sentence
from mtpc.errors import MTPCError
from mtpc.files import provenance
from mtpc.lab.cli.main import app
from mtpc.lab.table import Table
from mtpc.lab.targets.frozen import default_device
from mtpc.lab.training.precision import product_seconds

SIZE, MEGA, GIGA = 2048, 1e6, 1e9
DTYPES = (torch.float32, torch.bfloat16)


def table(name: str, facts: dict[str, float], operations: float, products: dict[str, float]) -> Table:
    """Return one row for a training: its provenance's facts, and its speed relative to each plain product."""
    seconds, updates = facts["seconds"], facts["updates"]
    tokens = facts["tokens"] * facts["epochs"] / facts["planned_updates"] * updates
    columns = ["training", "updates", "seconds", "tokens/s", "MFLOP per token", "GFLOP/s"]
    columns += [f"of the product in {dtype}" for dtype in products]
    cells = [name, f"{updates}", f"{seconds:.0f}", f"{tokens / seconds:.0f}", f"{operations / tokens / MEGA:.2f}"]
    cells += [f"{operations / seconds / GIGA:.0f}"]
    cells += [f"{operations / seconds / speed:.0%} of {speed / GIGA:.0f}" for speed in products.values()]
    return Table("Training speed", columns, [cells])


@one_sentence
def main(arguments: Sequence[str] | None = None) -> None:
    """Train, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="train ...", help="arguments of mtpc")
    given = parser.parse_args(arguments).command
    if given[:1] != ["train"] or "--out" not in given:
        raise MTPCError("give the arguments of an `mtpc train` command with --out, as in `train fastmtp --out runs/x`.")
    if any(argument.partition("=")[0] == "--resume" for argument in given):
        raise MTPCError("leave out --resume: the updates of an earlier start would be divided by the time of this one.")
    device, out = default_device(), Path(given[given.index("--out") + 1])
    products = {
        str(dtype).removeprefix("torch."): 2 * SIZE**3 / product_seconds(dtype, SIZE, device) for dtype in DTYPES
    }
    with FlopCounterMode(display=False) as counter:
        code = app(given, standalone_mode=False)
    if code:
        raise MTPCError(f"the training ended with exit code {code}, so there is nothing to measure.")
    trained = [out, *sorted(path for path in out.iterdir() if path.is_dir())]  # several drafters have a folder each
    facts = next(written["training"] for folder in trained if "training" in (written := provenance.read(folder)))
    found = table(" ".join(given[:2]), facts, counter.get_total_flops(), products)
    Console(width=200).print(found.to_markdown(), markup=False)


if __name__ == "__main__":
    sys.exit(main())
