"""How many tokens SGLang's requests allow to be drafted for them, where all drafts of a step have one length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from mtpc.draft import one_hot
from mtpc.draft_length.limit import draft_limit, ignore_limits
from mtpc.to_device import copy_to_device

_LIMITS: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # by SGLang's ``Req``, so that each is read once


def limit_of(request: Any) -> int:
    """Return the most draft tokens that a request allows in its ``custom_params``, see `draft_limit`.

    Args:
        request: SGLang's ``Req``.
    """
    if request not in _LIMITS:
        _LIMITS[request] = draft_limit(request.sampling_params.custom_params)
    return _LIMITS[request]


def keep_limits(built: Any, requests: Sequence[Any], is_chain: bool) -> None:
    """Replace draft tokens beyond the limits of requests, which SGLang verifies all the same, with token 0.

    As after a shorter draft of a text part, token 0 counts as certain, so it is accepted only where the target samples
    it.  A text part whose drafts are verified lazily keeps the limits itself.

    Args:
        built: SGLang's ``EagleVerifyInput``, whose tokens and distributions are overwritten.
        requests: SGLang's ``Req`` of each row of the batch.
        is_chain: Whether the drafts are chains; limits do nothing for trees.
    """
    limits = [limit_of(request) for request in requests]
    if not is_chain:
        ignore_limits(limits, "a draft tree has a fixed number of nodes")
        return
    tokens, probs = built.draft_token.view(-1, built.draft_token_num)[:, 1:], built.draft_probs
    beyond = [(row, place) for row, limit in enumerate(limits) for place in range(limit, tokens.shape[1])]
    if not beyond or not isinstance(probs, Tensor | None):
        return
    rows, places = copy_to_device(torch.tensor(beyond).T, tokens.device)
    tokens[rows, places] = 0
    if probs is not None:
        probs[rows, places] = one_hot(tokens.new_zeros(1, 1, dtype=torch.int64), probs.shape[2])[0, 0]
