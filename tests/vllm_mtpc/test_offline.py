"""A run that fails leaves nothing under way in the engine."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_mtpc.offline import complete


class Engine:
    """Takes one request, and no second."""

    def __init__(self) -> None:
        self.under_way: list[str] = []

    def add_request(self, name: str, *_: Any) -> None:
        """As of vLLM's engine."""
        if self.under_way:
            raise ValueError("the prompt is too long")
        self.under_way.append(name)

    def abort_request(self, names: list[str]) -> None:
        """As of vLLM's engine."""
        self.under_way = [name for name in self.under_way if name not in names]


def test_a_run_that_fails_takes_its_requests_back() -> None:
    engine: Any = Engine()
    body = {"prompts": ["a", "b"], "concurrency": 2, "max_tokens": 4, "temperature": 0.0, "ignore_eos": True}
    with pytest.raises(ValueError, match="too long"):
        complete(engine, body)
    assert not engine.under_way
