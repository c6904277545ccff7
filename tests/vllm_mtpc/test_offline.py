"""Prompts are completed at a fixed concurrency, and a run that fails leaves no request in the engine."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from vllm_mtpc import offline
from vllm_mtpc.offline import EngineLoop, complete


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
    body = {"prompts": ["a", "b"], "limits": [4, 4], "concurrency": 2, "temperature": 0.0, "ignore_eos": True}
    with pytest.raises(ValueError, match="too long"):
        complete(engine, body)
    assert not engine.under_way


class Answering:
    """Emits one letter of each request's prompt in every step, in capitals."""

    def __init__(self) -> None:
        self.left: dict[str, str] = {}
        self.limits: list[int] = []
        self.most = 0

    def add_request(self, name: str, prompt: Any, params: Any) -> None:
        """As of vLLM's engine."""
        self.left[name] = prompt if isinstance(prompt, str) else bytes(prompt["prompt_token_ids"]).decode()
        self.most = max(self.most, len(self.left))
        if params is not None:
            self.limits.append(params.max_tokens)

    def step(self) -> list[Any]:
        """As of vLLM's engine."""
        outputs = []
        for name, text in list(self.left.items()):
            delta = SimpleNamespace(text=text[0].upper(), token_ids=[ord(text[0])])
            outputs.append(SimpleNamespace(request_id=name, outputs=[delta], finished=len(text) == 1))
            self.left[name] = text[1:]
            if len(text) == 1:
                del self.left[name]
        return outputs


def test_the_loop_answers_with_what_is_finished_and_lets_others_have_the_engine() -> None:
    engine: Any = Answering()
    loop = EngineLoop(engine)
    threading.Thread(target=loop.run, daemon=True).start()
    params: Any = None
    assert loop.complete(list(b"abc"), params).text == "C"
    assert loop.complete(list(b"z"), params).text == "Z"
    assert loop.run_between_steps(lambda it: it) is engine
    with pytest.raises(ZeroDivisionError):
        loop.run_between_steps(lambda it: 1 / 0)


@pytest.mark.parametrize("together", [1, 2, 5])
def test_every_prompt_is_completed_so_many_at_a_time(together: int) -> None:
    engine: Any = Answering()
    asked = ["abc", "d", "efgh"]
    body = {"prompts": asked, "limits": [5, 6, 7], "concurrency": together, "temperature": 0.0, "ignore_eos": True}
    found = complete(engine, body)
    assert engine.limits == [5, 6, 7]
    assert engine.most == min(together, 3)
    assert [answer["text"] for answer in found["completions"]] == ["ABC", "D", "EFGH"]
    assert [answer["tokens"] for answer in found["completions"]] == [3, 1, 4]
    for answer in found["completions"]:
        assert 0 < answer["first"] <= answer["seconds"] <= found["seconds"]
        assert (answer["first"] == answer["seconds"]) == (answer["tokens"] == 1)
        assert 1 <= answer["steps"] <= answer["tokens"]


def test_an_engine_that_fails_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread that answers keeps it: a process ends with the last thread that is no daemon."""
    before = set(threading.enumerate())
    started: list[threading.Thread] = []

    def run(self: EngineLoop) -> None:
        started.extend(set(threading.enumerate()) - before)
        raise RuntimeError("the engine failed")

    monkeypatch.setattr("sys.argv", ["offline", "--port", "0", "--model", "any"])
    monkeypatch.setattr(offline.EngineArgs, "from_cli_args", lambda arguments: None)
    monkeypatch.setattr(offline.LLMEngine, "from_engine_args", lambda arguments: None)
    monkeypatch.setattr(EngineLoop, "run", run)
    with pytest.raises(RuntimeError, match="the engine failed"):
        offline.main()
    assert [thread.daemon for thread in started] == [True]
