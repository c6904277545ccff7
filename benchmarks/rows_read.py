"""Rows of the output head that a rank reads for a draft of a serial part, where shapes are static.

    python -m benchmarks.rows_read

Counted, not timed: the rows that `mtpc.target_head.union` gives a rank, against the rank's share of the whole head.
SmolLM2 has the draft vocabularies of the drafter that ships.  For MiMo none are here: its own stand for the most that
there can be, four of which no two share a token.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console
from torch import Tensor

from mtpc.lab.table import Table
from mtpc.target_head.rows import Ranks
from mtpc.target_head.union import UnionLogits
from mtpc.vocabulary.formats import read_rankings
from mtpc.vocabulary.ranking import Ranking, Rankings
from mtpc.vocabulary.settings import OWN_FILE, OWN_SIZE
from mtpc.vocabulary.vocabularies import DraftVocabularies, VocabularySettings

DRAFTER = Path(__file__).parents[1] / "weights" / "smollm2-fastmtp"
LANGUAGES = 4
RANKS = (1, 2, 4, 8)


class Counted(NamedTuple):
    """Rows that the rank with the most of them reads.

    apart: every vocabulary's own rows, for any request.  together: all vocabularies, on every rank.  language: of the
    largest of the languages' shares.  all: of all languages.  head: the rank's share of the whole head.
    """

    apart: int
    together: int
    language: int
    all: int
    head: int


def vocabularies() -> Iterator[tuple[str, DraftVocabularies]]:
    """By the models they are for."""
    settings = VocabularySettings(OWN_SIZE)
    yield "SmolLM2", DraftVocabularies(read_rankings(DRAFTER / OWN_FILE, 49152), settings)
    mixed = torch.randperm(151680, generator=torch.Generator().manual_seed(0))[: LANGUAGES * OWN_SIZE]
    rankings = {str(number): Ranking(tuple(tokens.tolist())) for number, tokens in enumerate(mixed.split(OWN_SIZE))}
    yield "MiMo", DraftVocabularies(Rankings(151680, rankings), settings)


def counted(of: DraftVocabularies, count: int) -> Counted:
    """With so many ranks."""

    def gather(tensor: Tensor) -> Tensor:
        return tensor.repeat(1, count)

    head = -(-of.vocab_size // count)
    ranks = [UnionLogits(of, torch.zeros(head, 1), Ranks(number, count, gather)) for number in range(count)]
    read = torch.stack([rank.held.sum(1) for rank in ranks]).amax(0)
    assert of.detector is not None
    languages = slice(len(of.detector.languages))
    apart = sum(map(len, of.ids[languages]))
    return Counted(apart, ranks[0].rows[0].size, int(read[languages].max()), int(read[-1]), head)


def table(model: str, of: DraftVocabularies) -> Table:
    """Rows, and what share they are of the rank's own rows of the whole head."""
    assert of.detector is not None
    rows = [[str(count), *_cells(counted(of, count))] for count in RANKS]
    title = f"{model}: {len(of.detector.languages)} x {OWN_SIZE} of {of.vocab_size} tokens"
    return Table(
        title, ["ranks", "the head", "each apart", "union on each", "now, one language", "now, all languages"], rows
    )


def _cells(rows: Counted) -> list[str]:
    read = rows.apart, rows.together, rows.language, rows.all
    return [f"{rows.head:,}", *(f"{each:,} ({each / rows.head:.2f})" for each in read)]


if __name__ == "__main__":
    for name, found in vocabularies():
        Console().print(table(name, found).to_markdown(), markup=False)
