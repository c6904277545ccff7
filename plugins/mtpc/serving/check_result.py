"""One line of `mtpc doctor`."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """What was looked at, whether it is as it should be, and, if not, what mends it.

    An adapter's check (entry point group ``mtpc.adapters``) returns a list of these, one for each integration point
    of its engine.
    """

    subject: str  # "python", "vllm", "vllm: EagleProposer.propose"
    ok: bool
    detail: str  # what was found: a version, a signature
    mend: str = ""  # one sentence, imperative; empty when ok
