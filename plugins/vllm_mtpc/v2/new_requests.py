"""Callback for new requests of Model Runner V2."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

WARM_UP = "_warmup_"  # begins the ids of requests that vLLM makes up while it starts


def on_new_request(states: Any, begin: Callable[[str, int, list[int]], None]) -> None:
    """Call a function for every request that is added, including preempted ones that return.

    Args:
        states: The runner's ``RequestState``, whose ``add_request`` is wrapped.
        begin: Receives the request's id, its slot and its tokens, which include the output of a preempted request.
    """
    add = states.add_request

    @functools.wraps(add)
    def add_request(req_id: str, prompt_len: int, all_token_ids: list[int], *others: Any, **named: Any) -> None:
        add(req_id, prompt_len, all_token_ids, *others, **named)
        begin(req_id, states.req_id_to_index[req_id], all_token_ids)

    states.add_request = add_request
