"""One line of ``mtpc doctor``."""

from __future__ import annotations

from typing import NamedTuple


class CheckResult(NamedTuple):
    """The result of one check, and the fix if it failed.

    An adapter's check (entry point group ``mtpc.adapters``) returns a list of these, one for each integration point
    of its engine.

    Attributes:
        subject: What was checked: "python", "vllm", "vllm: EagleProposer.propose".
        ok: Whether it is as expected.
        detail: What was found: a version, a signature.
        fix: How to fix it, one imperative sentence; empty if ``ok``.
    """

    subject: str
    ok: bool
    detail: str
    fix: str = ""
