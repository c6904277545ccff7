"""Parameters of single requests, which vLLM's API passes on in ``vllm_xargs``."""

from __future__ import annotations

from typing import Any

from mtpc.draft_length.limit import draft_limit
from mtpc.prompt_lookup.prediction import Predictions
from vllm_mtpc.additional_config import TENANT


def limit_of(request: Any) -> int:
    """Return the most draft tokens that a request allows, see `draft_limit`.

    Args:
        request: vLLM's ``CachedRequestState`` or ``NewRequestData``.
    """
    return draft_limit(_extra_arguments(request))


def predicted_text(predictions: Predictions, request: Any) -> list[int]:
    """Return the text that a request predicts, see `Predictions.of`.

    Args:
        predictions: Reads it.
        request: vLLM's ``CachedRequestState``.
    """
    return predictions.of(_extra_arguments(request), request.prompt_token_ids or [])


def tenant_of(request: Any) -> str | None:
    """Return the tenant of a request; None: it names none.

    Args:
        request: vLLM's ``CachedRequestState``.
    """
    tenant = _extra_arguments(request).get(TENANT)
    return None if tenant is None else str(tenant)


def _extra_arguments(request: Any) -> dict[str, Any]:
    """Return a request's ``vllm_xargs``."""
    return getattr(request.sampling_params, "extra_args", None) or {}
