"""Gathers the commands of `mtpc`."""

from __future__ import annotations

from typing import Annotated

import typer

import mtpc
from mtpc.lab.cli import bench, convert, corpus, distill, doctor, evaluate, inspect, plan, prove, target, train, vocab
from mtpc.lab.cli.group import Group

HELP = """Make, look at and measure multi-token-prediction drafters.

From text to a served drafter:

1. mtpc corpus DIR                 text of clear licence, as bytes

2. mtpc target bytes               a small byte-level model that a drafter can be trained for

3. mtpc train mtpc                 a drafter: a head that predicts a whole window of tokens at once

4. mtpc evaluate DIR               its expected acceptance on held-out text

5. mtpc inspect DIR                what a drafter checkpoint holds, and the line that serves it

6. mtpc bench                      the engine without it, with it and with its own n-gram drafter

7. mtpc plan                       from that, what pays on this machine, as a configuration to serve

8. mtpc prove URL                  that a server with it says what the same server without it says

For a chat model, in place of 1 to 3: mtpc target smollm2, mtpc distill, mtpc train fastmtp, mtpc vocab build.
`mtpc train --help` lists the draft methods. A drafter that others have published: mtpc convert.

When something does not start: mtpc doctor.
"""

app = typer.Typer(name="mtpc", cls=Group, help=HELP, no_args_is_help=True, rich_markup_mode="markdown")
app.command("corpus")(corpus.corpus)
app.add_typer(target.app, name="target")
app.command("distill")(distill.distill)
app.add_typer(train.app, name="train")
app.command("evaluate")(evaluate.evaluate)
app.add_typer(vocab.app, name="vocab")
app.add_typer(convert.app, name="convert")
app.command("inspect")(inspect.inspect)
app.command("bench")(bench.bench)
app.command("plan")(plan.plan)
app.command("prove")(prove.prove)
app.command("doctor")(doctor.doctor)


def show_version(wanted: bool) -> None:
    """Print the version and stop."""
    if wanted:
        typer.echo(f"mtpc-plugins {mtpc.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options before the command."""


if __name__ == "__main__":
    app()
