"""Requests of Model Runner V2 as they come into their slots."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def follow(states: Any, begin: Callable[[int, list[int]], None]) -> None:
    """Tell of every request that comes, its slot and its text: also of preempted ones, which have said something.

    states: the runner's ``RequestState``.
    """
    add = states.add_request

    @functools.wraps(add)
    def add_request(req_id: str, prompt_len: int, all_token_ids: list[int], *others: Any, **named: Any) -> None:
        add(req_id, prompt_len, all_token_ids, *others, **named)
        begin(states.req_id_to_index[req_id], all_token_ids)

    states.add_request = add_request
