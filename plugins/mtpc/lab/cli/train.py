"""`mtpc train DRAFT_METHOD`."""

from __future__ import annotations

import os

import typer

from mtpc.lab.cli.methods import method_commands

LAUNCHED = "TORCHELASTIC_RUN_ID"  # in the environment of processes that torchrun starts

HELP = """Train a drafter of a draft method for a frozen target.

Examples:
```
mtpc train mtpc --target weights/byte-target --circuits btree --windows 8

mtpc train fastmtp --target runs/smollm2 --data runs/data --out runs/fastmtp

# On four GPUs of one machine, with the same result.
torchrun --standalone --nproc-per-node 4 --no-python \\
    mtpc train fastmtp --target runs/smollm2 --data runs/data --out runs/four
```
"""

app = typer.Typer(cls=method_commands("mtpc.train"), help=HELP, no_args_is_help=True, rich_markup_mode="markdown")


@app.callback()
def options() -> None:
    """Take no options before the draft method, and join the processes of torchrun before it loads a target."""
    if LAUNCHED in os.environ:
        from mtpc.lab.training.processes import start_processes

        start_processes()
