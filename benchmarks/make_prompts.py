"""Writes plugins/mtpc/lab/text/prompts.jsonl: prompts from the held-out documents of the corpus.

    python benchmarks/make_prompts.py [CORPUS [OUT]]

With OUT they are from the documents that the target was trained on, to count by: see `mtpc train copying`.

Each prompt starts at a line's start, holds 80 to 200 bytes of ASCII and ends where a word ends.  Prose and code
alternate, and as many documents as possible give one.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import numpy as np

from mtpc.lab.text.corpus import Corpus, StoredDocument
from mtpc.lab.text.prompts import SHIPPED

EACH = 30  # prompts of each kind
SHORTEST, LONGEST = 80, 200  # bytes
SEED = 0


def cut(text: bytes, start: int, length: int) -> str | None:
    """The text from the first line's start at or after ``start``, up to a word's end; None if it does not suit."""
    begin = text.find(b"\n", start) + 1
    piece = text[begin : begin + length]
    end = piece.rfind(b" ")
    if begin == 0 or len(piece) < length or end < SHORTEST or not piece.isascii() or piece[:1].isspace():
        return None
    return piece[:end].rstrip().decode() if len(piece[:end].rstrip()) >= SHORTEST else None


def prompts(corpus: Corpus, split: str, kind: str, generator: random.Random) -> list[dict[str, str]]:
    """``EACH`` prompts of one kind, drawn from the documents in turn."""
    tokens = corpus.tokens(split)
    documents = [entry for entry in corpus.documents if (entry.split, entry.kind) == (split, kind)]
    generator.shuffle(documents)
    found: list[dict[str, str]] = []
    while len(found) < EACH:
        chosen = documents[: EACH - len(found)]
        found += [{"kind": kind, "document": d.name, "text": one(tokens, d, generator)} for d in chosen]
    return found


def one(tokens: np.ndarray, document: StoredDocument, generator: random.Random) -> str:
    """A prompt from one document."""
    text = bytes(tokens[document.offset : document.offset + document.length].astype("uint8"))
    while True:
        start = generator.randrange(max(1, len(text) - LONGEST))
        piece = cut(text, start, generator.randint(SHORTEST + 20, LONGEST))
        if piece is not None:
            return piece


def main() -> None:
    """Write the file of the package, or OUT."""
    folder, out = [*sys.argv[1:], *[None] * 2][:2]
    corpus, split = Corpus(Path(folder or "corpus")), "train" if out else "heldout"
    prose, code = (prompts(corpus, split, kind, random.Random(f"{SEED} {kind}")) for kind in ("prose", "code"))
    lines = [json.dumps(prompt) for pair in zip(prose, code, strict=True) for prompt in pair]
    Path(out or SHIPPED).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
