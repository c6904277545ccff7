"""Earlier answers of a server, by tenant: what later requests of the same tenant may go on with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

TENANTS = 64  # that are remembered at once: beyond that the one who was seen least recently is forgotten
BREAK = -1  # between two answers: no token, so nothing is copied across


class Store:
    """The last answers of each tenant, in memory, and nobody else's.

    size: tokens that are kept of a tenant.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.kept: dict[str, np.ndarray] = {}  # int32 [at most size], the tenant who was seen last at the end

    def of(self, tenant: str | None) -> np.ndarray:
        """What a tenant's requests have answered, with a `BREAK` after each, int32 [n]; nothing for nobody."""
        if tenant is None or tenant not in self.kept:
            return np.empty(0, dtype=np.int32)
        self.kept[tenant] = answers = self.kept.pop(tenant)
        return answers

    def add(self, tenant: str | None, answer: Sequence[int] | np.ndarray) -> None:
        """One more answer, whose oldest tokens and those before it make room; that of nobody is not kept."""
        if tenant is None:
            return
        both = np.concatenate([self.of(tenant), np.asarray(answer, dtype=np.int32), [BREAK]]).astype(np.int32)
        self.kept.pop(tenant, None)
        self.kept[tenant] = both[-self.size :].copy()
        if len(self.kept) > TENANTS:
            del self.kept[next(iter(self.kept))]
