"""Updates of weights while serving, as by ``/update_weights_from_disk``."""

from __future__ import annotations

import logging
from functools import cache

from sglang.srt.runtime_context import get_parallel

logger = logging.getLogger(f"sglang.{__name__}")


@cache
def warn_of_update(kept: str = "the drafter") -> None:
    """Log, once and on the first rank, what updates leave as it is.

    Args:
        kept: What they leave, in the words of the message.
    """
    if not get_parallel().tp_rank:
        logger.warning(
            "Weight updates and checks leave out %s, with all that it copied of the target: the output is the updated "
            "target's, but acceptance may drop. Restart the server to load everything again.",
            kept,
        )
