"""`mtpc train DRAFT_METHOD`."""

from __future__ import annotations

import typer

from mtpc.lab.cli.methods import method_commands
from mtpc.lab.torchrun import is_launched

HELP = """Train a drafter of a draft method for a frozen target.

Examples:
```
mtpc train mtpc --target weights/byte-target --circuits btree --windows 8

mtpc train fastmtp --target runs/smollm2 --data runs/distilled \\
    --out runs/fastmtp --loss kl --optimizer muon \\
    --learning-rate 5e-3 --batch 4

# On four GPUs of one machine, with the same result.
torchrun --standalone --nproc-per-node 4 --no-python \\
    mtpc train fastmtp --target runs/smollm2 --data runs/distilled \\
    --out runs/four --loss kl --optimizer muon \\
    --learning-rate 5e-3 --batch 4
```
"""

app = typer.Typer(cls=method_commands("mtpc.train"), help=HELP, no_args_is_help=True, rich_markup_mode="markdown")


@app.callback()
def options() -> None:
    """Take no options before the draft method, and join the processes of torchrun before it loads a target."""
    if is_launched():
        from mtpc.lab.training.processes import start_processes

        start_processes()
