"""Gathers the commands of `mtpc`."""

from __future__ import annotations

from typing import Annotated

import typer

import mtpc
from mtpc.lab.cli import (
    bench,
    check_acceptance,
    convert,
    corpus,
    distill,
    doctor,
    evaluate,
    inspect,
    plan,
    prove,
    target,
    train,
    vocab,
)
from mtpc.lab.cli.group import Group

HELP = """Train, evaluate, benchmark and verify drafters for speculative decoding in vLLM and SGLang.

From text to a served drafter:

1. `mtpc corpus DIR` builds a training corpus of text under clear licenses.
2. `mtpc target bytes` trains a small byte-level target.
3. `mtpc train mtpc` trains a drafter, a head that predicts several tokens at once.
4. `mtpc evaluate DIR` computes its expected acceptance length on held-out text.
5. `mtpc inspect DIR` validates the checkpoint and prints the commands that serve it.
6. `mtpc bench` measures the engine without it, with it, and with its own n-gram drafter.
7. `mtpc plan` writes a configuration for this machine from these results.
8. `mtpc prove URL` tests that the drafter does not change the server's output.
9. `mtpc check-acceptance URL` tests that a server accepts as many draft tokens as it should.

For a chat model, replace steps 1 to 3 with `mtpc target smollm2`, `mtpc distill` and `mtpc train fastmtp`.
`mtpc vocab build` adds a draft vocabulary, `mtpc train --help` lists the draft methods, and `mtpc convert` converts a
published checkpoint.

If something does not start, run `mtpc doctor`.

Example:
```
mtpc inspect weights/byte-mtpc-hmm-n8
mtpc bench --target weights/byte-target --drafter weights/byte-mtpc-hmm-n8
```
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
app.command("check-acceptance")(check_acceptance.check_acceptance)
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
    """Take the options before the command."""


if __name__ == "__main__":
    app()
