"""Earlier answers of a server, by tenant: what later requests of the same tenant may go on with."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

TENANTS = 64  # that are remembered at once: beyond that the one who was seen least recently is forgotten
BREAK = -1  # between two answers: no token, so nothing is copied across


class Store:
    """The last answers of each tenant, in memory, and nobody else's.

    size: tokens that are kept of a tenant.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.kept: dict[str, array[int]] = {}  # at most size tokens of 4 bytes; the tenant who was seen last at the end

    def of(self, tenant: str | None) -> array[int]:
        """What a tenant's requests have answered, with a `BREAK` after each; nothing for nobody."""
        if tenant is None or tenant not in self.kept:
            return array("i")
        self.kept[tenant] = answers = self.kept.pop(tenant)
        return answers

    def add(self, tenant: str | None, answer: Iterable[int]) -> None:
        """One more answer, whose oldest tokens and those before it make room; that of nobody is not kept."""
        if tenant is None:
            return
        both = self.of(tenant) + array("i", [*answer, BREAK])
        self.kept.pop(tenant, None)
        self.kept[tenant] = both[-self.size :]
        if len(self.kept) > TENANTS:
            del self.kept[next(iter(self.kept))]
