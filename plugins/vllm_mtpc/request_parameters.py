"""Parameters of single requests: those that vLLM's API passes on in ``vllm_xargs``, and whether there is a grammar."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any

from mtpc.draft_length.limit import draft_limit, ignore_limits
from mtpc.draft_model.pair import load_tokenizer
from mtpc.prompt_lookup.prediction import Predictions
from vllm_mtpc.additional_config import TENANT


def predictions_of(vllm_config: Any) -> Predictions:
    """Return what reads the predictions of requests, with the target's tokenizer.

    Args:
        vllm_config: vLLM's ``VllmConfig``.
    """
    config = vllm_config.model_config
    return Predictions(partial(load_tokenizer, config.tokenizer), config.get_vocab_size())


def limit_of(request: Any) -> int:
    """Return the most draft tokens that a request allows, see `draft_limit`.

    Args:
        request: vLLM's ``CachedRequestState`` or ``NewRequestData``.
    """
    return draft_limit(_extra_arguments(request))


def ignore_new_limits(ids: Iterable[str], known: Collection[str], requests: Mapping[str, Any]) -> None:
    """Log a warning if a request that joins a batch of the V1 runner sets a limit, where all drafts have K tokens.

    Args:
        ids: Ids of the batch's requests.
        known: Those of the preceding batch.
        requests: vLLM's requests by id.
    """
    limits = (limit_of(requests[name]) for name in ids if name not in known)
    ignore_limits(limits, "all drafts of this server have num_speculative_tokens tokens")


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


def has_grammar(request: Any) -> bool:
    """Return whether the output of a request follows a grammar, so that its drafts must be deterministic.

    vLLM cuts a draft before the first token that the grammar refuses, and samples this position from the target under
    the grammar.  It decides so by the token itself.  Were the token drawn from q, only the tokens that the grammar
    allows would reach verification.  Their distribution would be q given that they are allowed, not the stated q.

    A deterministic draft token is decided by the text before it, and so is the cut.  Up to the cut each token is
    verified with q = 1, which is exact, and after it the target alone is sampled.

    Args:
        request: vLLM's ``CachedRequestState`` or ``NewRequestData``.
    """
    return getattr(request.sampling_params, "structured_outputs", None) is not None


def _extra_arguments(request: Any) -> dict[str, Any]:
    """Return a request's ``vllm_xargs``."""
    return getattr(request.sampling_params, "extra_args", None) or {}
