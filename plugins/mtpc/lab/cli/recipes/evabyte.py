"""`mtpc convert evabyte`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mtpc.lab.cli import method_options as options
from mtpc.lab.options.paths import model_folder


def convert(
    source: Annotated[
        Path, typer.Argument(metavar="SRC", callback=model_folder, help="EvaByte model: a folder or a Hugging Face id.")
    ],
    folder: options.Converted,
) -> None:
    """Convert the multi-byte heads of an EvaByte model (EvaByte/EvaByte, EvaByte/EvaByte-SFT) into an FF circuit.

    Reads config.json and the tensor lm_head.weight. The heads draft for EvaByte only, whose states they read, and
    neither engine runs EvaByte.

    Example:
    ```
    mtpc convert evabyte EvaByte/EvaByte-SFT runs/evabyte-heads
    ```
    """
    from mtpc.lab.cli.recipes.circuit_line import circuit_line
    from mtpc.lab.convert.evabyte import convert_evabyte

    typer.echo(circuit_line(folder, convert_evabyte(source, folder)))
