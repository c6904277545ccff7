"""Checks whether this machine can serve a drafter, and names the fix for each problem."""

from mtpc.lab.doctor.checks import examination
from mtpc.serving.check_result import CheckResult

__all__ = ["CheckResult", "examination"]
