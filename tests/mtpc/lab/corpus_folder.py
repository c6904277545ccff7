"""A small random corpus on disk, for targets of any vocabulary."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from mtpc.lab.text.corpus import Corpus

KINDS = ("prose", "code")


def make_corpus(folder: Path, vocab: int, length: int = 600, seed: int = 0) -> Corpus:
    """One document of each kind in each split; token t is followed by t + 1 more often than not."""
    generator = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    documents = []
    for split in ("train", "heldout"):
        steps = np.where(generator.random(2 * length) < 0.7, 1, generator.integers(0, vocab, 2 * length))
        (steps.cumsum() % vocab).astype(np.uint16).tofile(folder / f"{split}.bin")
        documents += [
            {"name": f"{split} {kind}", "kind": kind, "licence": "none", "split": split, "offset": i * length,
             "length": length}
            for i, kind in enumerate(KINDS)
        ]  # fmt: skip
    (folder / "documents.json").write_text(json.dumps(documents))
    return Corpus(folder)
