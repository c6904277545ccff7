"""What one test found, before and among all others."""

from __future__ import annotations

from collections.abc import Sequence

from mtpc.files.config_model import Strict
from mtpc.lab.statistics.chi_square import holm
from mtpc.lab.statistics.power import detectable_distance

SMALLEST = 20.0  # least expected count of a cell: at the level of one test of many, 5 would cry wolf
LEVEL = 1e-3  # of all tests of a server together: so often is one that is right found wrong


class Found(Strict):
    """p: of what was seen, if nothing is wrong; None where nothing could be judged.

    test, of: what was looked at, and where.  samples, cells: how many were counted, and told apart.
    """

    test: str
    of: str
    samples: int
    cells: int
    p: float | None
    adjusted: float = 1.0  # for all tests of the server together
    sees: float | None = None  # total variation over the cells that would have been seen with a chance of 99 %
    counts: tuple[int, ...] = ()  # of the parts of 0 to 1, where points are counted

    @property
    def wrong(self) -> bool:
        """Whether the server is found wrong."""
        return self.adjusted < LEVEL


def among(found: Sequence[Found]) -> tuple[Found, ...]:
    """Each among all: adjusted, and with its power at the level that is then left to it."""
    judged = [one for one in found if one.p is not None]
    values = dict(zip(map(id, judged), holm([one.p for one in judged if one.p is not None]), strict=True))
    level = LEVEL / max(1, len(judged))
    return tuple(
        one.model_copy(
            update={
                "adjusted": values.get(id(one), 1.0),
                "sees": detectable_distance(one.samples, one.cells, level) if one.p is not None and one.cells > 1 else None,
            }
        )
        for one in found
    )
