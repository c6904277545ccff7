"""Bytes of weights that one draft step of a target's MTP layer reads, with and without draft vocabularies.

    python -m benchmarks.draft_bytes

Bytes are counted from published shapes in bfloat16; nothing is timed.  A draft step reads every matrix of the layer
once, for any batch size.  It reads all rows of the target's output head, or the rows of the draft vocabularies that the
batch uses.  The embedding, of which each request reads one row, norms and biases are left out.

The second table is for quantized heads.  A draft step over all tokens reads the quantized head, but the rows of draft
vocabularies are dequantized to bfloat16.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rich.console import Console

from mtpc.lab.table import Table

BYTES, MEGA = 2, 1e6


class Shape(NamedTuple):
    """Sizes of a target and of its MTP layer.

    Attributes:
        hidden: Hidden size, d.
        vocab: Vocabulary size, V.
        inner: Inner size of the layer's MLP.
        queries: Rows of the query projection, with those of the output gate where there is one.
        keys: Rows of the key projection, and of the value projection.
        attended: Inputs of the attention's output projection.
    """

    hidden: int
    vocab: int
    inner: int
    queries: int
    keys: int
    attended: int

    @property
    def row(self) -> int:
        """Bytes of a row of the output head."""
        return BYTES * self.hidden

    @property
    def block(self) -> int:
        """Bytes of the attention and the MLP of a decoder layer."""
        return self.row * (self.queries + 2 * self.keys + self.attended + 3 * self.inner)

    @property
    def layer(self) -> int:
        """Bytes of a draft layer: the projection of (state, embedding), the attention and the MLP."""
        return self.row * 2 * self.hidden + self.block


TARGETS = {
    "MiMo-7B": Shape(hidden=4096, vocab=151680, inner=11008, queries=4096, keys=1024, attended=4096),
    "Qwen3.5-27B": Shape(hidden=5120, vocab=248320, inner=17408, queries=12288, keys=1024, attended=6144),
}


# Bytes of a row of d numbers, with its scales. FP8 and INT8 have one float32 scale for each row. AWQ and GPTQ have a
# 16-bit scale and a 4-bit zero point for each 128 numbers.
HEADS: dict[str, Callable[[int], float]] = {
    "bfloat16": lambda size: BYTES * size,
    "FP8 or INT8": lambda size: size + 4,
    "4 bits, groups of 128": lambda size: size / 2 + size / 128 * 2.5,
}


def rows(shape: Shape, size: int, languages: int) -> Iterator[list[str]]:
    """Yield the rows of a target: all tokens, the union of all languages' draft vocabularies, and one vocabulary."""
    whole = shape.layer + shape.vocab * shape.row
    named = {"all": shape.vocab, f"{languages} languages": languages * size, "one language": size}
    for name, tokens in named.items():
        head = min(tokens, shape.vocab) * shape.row
        sizes = [f"{bytes_ / MEGA:,.0f}" for bytes_ in (shape.layer, head, shape.layer + head)]
        yield [name, f"{head // shape.row:,}", *sizes, f"{(shape.layer + head) / whole:.2f}"]


def head_rows(shape: Shape, size: int, languages: int) -> Iterator[list[str]]:
    """Yield a row for each format of the head: bytes of all rows and of draft vocabularies, and shares of a step."""
    for name, row in HEADS.items():
        whole = shape.vocab * row(shape.hidden)
        some = [min(tokens, shape.vocab) * shape.row for tokens in (languages * size, size)]
        shares = [(shape.layer + part) / (shape.layer + whole) for part in some]
        yield [name, *(f"{part / MEGA:,.0f}" for part in (whole, *some)), *(f"{share:.2f}" for share in shares)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    size = "tokens of each language's draft vocabulary (default: %(default)s)"
    parser.add_argument("--size", type=int, default=8192, help=size)
    languages = "number of languages in a batch; they have no token in common (default: %(default)s)"
    parser.add_argument("--languages", type=int, default=4, help=languages)
    chosen = parser.parse_args(arguments)
    columns = ["target", "drafts from", "tokens", "layer, MB", "head, MB", "draft step, MB", "share of the whole"]
    found = [[name, *row] for name, shape in TARGETS.items() for row in rows(shape, chosen.size, chosen.languages)]
    tables = [Table("Weights that one draft step reads", columns, found)]
    which = f"{chosen.languages} languages", "one language"
    columns = ["target", "its head", "all tokens, MB", *(f"{name}, MB" for name in which)]
    columns += [f"step, {name}" for name in which]
    found = [[name, *row] for name, shape in TARGETS.items() for row in head_rows(shape, chosen.size, chosen.languages)]
    tables.append(Table("Bytes read of the output head, and of a draft step relative to all tokens", columns, found))
    for table in tables:
        Console(width=140).print(table.to_markdown(), markup=False)


if __name__ == "__main__":
    main()
