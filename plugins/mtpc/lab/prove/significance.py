"""One statistical test of a server, and its correction for all tests of that server."""

from __future__ import annotations

from collections.abc import Sequence

from mtpc.files.config_model import Strict
from mtpc.lab.statistics.chi_square import holm
from mtpc.lab.statistics.power import detectable_distance

MIN_EXPECTED = 20.0  # minimum expected count of a cell: at the level of one of many tests, 5 gives false alarms
LEVEL = 1e-3  # probability that a correct server fails any of its tests


class SignificanceTest(Strict):
    """The outcome of one test; the fields are keys of report.json.

    Attributes:
        test: Name of the test.
        of: What was tested, as a sampling setting or a position.
        samples: Number of counted samples.
        cells: Number of cells.
        p: p-value; None where nothing could be tested.
        adjusted: p-value, corrected for all tests of the server.
        sees: Smallest total variation over the cells that is detected with probability 99%; None where unknown.
        counts: Counts by bin, where points are counted.
    """

    test: str
    of: str
    samples: int
    cells: int
    p: float | None
    adjusted: float = 1.0
    sees: float | None = None
    counts: tuple[int, ...] = ()

    @property
    def wrong(self) -> bool:
        """Whether the test rejects the server."""
        return self.adjusted < LEVEL


def adjust_for_all(tests: Sequence[SignificanceTest]) -> tuple[SignificanceTest, ...]:
    """Correct tests for their number (Holm), and add the power of each at the level that remains to it."""
    tested = [one for one in tests if one.p is not None]
    values = dict(zip(map(id, tested), holm([one.p for one in tested if one.p is not None]), strict=True))
    level = LEVEL / max(1, len(tested))
    return tuple(
        one.model_copy(
            update={
                "adjusted": values.get(id(one), 1.0),
                "sees": detectable_distance(one.samples, one.cells, level)
                if one.p is not None and one.cells > 1
                else None,
            }
        )
        for one in tests
    )
