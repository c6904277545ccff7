"""Draft limits: a request may set how many tokens are drafted for it at most."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from mtpc.draft import MAX_DRAFTS
from mtpc.files.config_model import short_repr

logger = logging.getLogger(__name__)

MAX_DRAFT_TOKENS = "max_draft_tokens"  # in vLLM's ``vllm_xargs`` and SGLang's ``custom_params``


def draft_limit(parameters: Any) -> int:
    """Return how many tokens may be drafted for a request in a step.

    Args:
        parameters: Its parameters, a mapping or None; the number is under `MAX_DRAFT_TOKENS`.

    Returns:
        The number; 0: none. `MAX_DRAFTS`, more than any draft has, if the request sets no limit, or a wrong one.
    """
    limit = parameters.get(MAX_DRAFT_TOKENS) if isinstance(parameters, Mapping) else None
    if limit is None:
        return MAX_DRAFTS
    if type(limit) is not int or limit < 0:
        rule = "it must be a whole number, 0 or more"
        logger.warning("A request's %r is ignored: %s, not %s.", MAX_DRAFT_TOKENS, rule, short_repr(limit))
        return MAX_DRAFTS
    return min(limit, MAX_DRAFTS)


def ignore_limits(limits: Iterable[int], reason: str) -> None:
    """Log a warning if a request sets a limit that this server cannot keep; each reason is logged once.

    Args:
        limits: The limit of each request, see `draft_limit`.
        reason: Why it cannot.
    """
    if any(limit < MAX_DRAFTS for limit in limits):
        _warn(reason)


@cache
def _warn(reason: str) -> None:
    logger.warning("%r of requests is ignored: %s.", MAX_DRAFT_TOKENS, reason)
