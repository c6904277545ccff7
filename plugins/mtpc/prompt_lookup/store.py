"""Earlier outputs of a server by tenant, from which later requests of the same tenant may copy."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

TENANTS = 64  # tenants to remember; the least recently used is dropped
SEPARATOR = -1  # between two outputs; it is no token, so no copy crosses it


class OutputStore:
    """The last output tokens of each tenant, in memory.

    Requests without a tenant neither add outputs nor read any.  The tenant used least recently is dropped first.

    Attributes:
        outputs: Tokens of each tenant, 4 bytes each; the tenant used last is at the end.

    Args:
        size: Tokens to keep per tenant.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.outputs: dict[str, array[int]] = {}

    def of(self, tenant: str | None) -> array[int]:
        """Return the outputs of a tenant with a `SEPARATOR` after each; none without a tenant."""
        if tenant is None or tenant not in self.outputs:
            return array("i")
        self.outputs[tenant] = output = self.outputs.pop(tenant)
        return output

    def add(self, tenant: str | None, output: Iterable[int]) -> None:
        """Add an output, dropping the tenant's oldest tokens; without a tenant nothing is kept.

        Args:
            tenant: Tenant of the request, or None.
            output: Tokens after the prompt.
        """
        if tenant is None:
            return
        joined = self.of(tenant) + array("i", [*output, SEPARATOR])
        self.outputs.pop(tenant, None)
        self.outputs[tenant] = joined[-self.size :]
        if len(self.outputs) > TENANTS:
            del self.outputs[next(iter(self.outputs))]
