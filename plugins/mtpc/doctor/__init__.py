"""Says whether this machine can serve a drafter, and what mends it if not."""

from mtpc.doctor.checks import examine
from mtpc.doctor.finding import Finding

__all__ = ["Finding", "examine"]
