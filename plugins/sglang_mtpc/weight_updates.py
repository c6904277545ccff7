"""Updates of weights while serving, as by ``/update_weights_from_disk``."""

from __future__ import annotations

import logging
from functools import cache

from sglang.srt.runtime_context import get_parallel

DRAFTER = "the drafter, with its rows of the target's output head for draft vocabularies"
logger = logging.getLogger(f"sglang.{__name__}")


@cache
def warn_of_update(kept: str) -> None:
    """Log, once and on the first rank, what an update leaves as it is.

    Args:
        kept: What it leaves, in the words of the message.
    """
    if not get_parallel().tp_rank:
        logger.warning(
            "Weights are updated, but not %s: the output is the updated target's, but acceptance may drop. Restart the "
            "server to load everything again.",
            kept,
        )
