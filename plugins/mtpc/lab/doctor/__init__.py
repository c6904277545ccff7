"""Says whether this machine can serve a drafter, and what mends it if not."""

from mtpc.lab.doctor.checks import examine
from mtpc.serving.check_result import Finding

__all__ = ["Finding", "examine"]
