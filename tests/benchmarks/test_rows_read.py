"""What a rank reads of the output head is never more than its share of it."""

from __future__ import annotations

from benchmarks.rows_read import OWN_SIZE, counted, table, vocabularies


def test_rows_of_eight_ranks() -> None:
    for model, of in vocabularies():
        alone, eight = counted(of, 1), counted(of, 8)
        assert alone.language == OWN_SIZE
        assert alone.all == alone.together
        assert eight.language < OWN_SIZE / 8 + 2**4  # kinds of tokens, by the vocabularies that hold them
        assert eight.all < alone.all / 8 + 1
        assert eight.all < eight.head < eight.together
        assert len(table(model, of).rows) == 4
