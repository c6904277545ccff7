"""Every example parses and is in the index, its commands exist, and the client runs against a server."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from types import ModuleType
from typing import Any

from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.mtpc.lab.servers.fake_server import serving
from tests.support.example_commands import EXAMPLES, check_options, load, recorded

CLIENT = "openai_client.py"
TRAINED = ("distill", "train", "vocab", "evaluate", "inspect")


def in_readme(start: str) -> list[str]:
    """The words of the README's command that starts so."""
    text = (EXAMPLES.parent / "README.md").read_text()
    blocks = re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (found,) = (block for block in blocks if block.startswith(start))
    return shlex.split(found.replace("\\\n", " "))


def test_each_example_parses_has_its_row_and_names_commands_that_exist() -> None:
    index = (EXAMPLES / "README.md").read_text()
    files = sorted({*EXAMPLES.iterdir()} - {EXAMPLES / "README.md", EXAMPLES / "__pycache__"})
    assert len(files) == 7
    for file in files:
        assert f"| `examples/{file.name}` |" in index, file
        if file.suffix == ".py":
            assert f"python examples/{file.name}" in (ast.get_docstring(ast.parse(file.read_text())) or ""), file
            continue
        assert file.read_text().splitlines()[1].startswith("# "), file
        commands = recorded(file.name, *(["TARGET", "OUT"] if file.name.startswith("train") else []))
        if file.name.startswith("serve"):
            assert commands == [in_readme(" ".join(commands[0][:3]))], file
            continue
        assert tuple(words[1] for words in commands) == TRAINED, file
        for program, *words in commands:
            assert program == "mtpc", file
            check_options(words)


def client(url: str) -> str:
    """What the client prints."""
    command = [sys.executable, EXAMPLES / CLIENT, "so it goes", "--url", url, "--max-tokens", "10"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout


def test_the_client_prints_both_completions_and_the_acceptance_length() -> None:
    def answer(body: dict[str, Any]) -> dict[str, Any]:
        return {"text": body["prompt"].upper(), "finish_reason": "length", "index": 0}

    with serving(answer=answer) as (url, state):
        assert client(url) == "SO IT GOES\n\nSO IT GOES\n\nacceptance length: 1.50\n"
        assert [body.get("stream", False) for body in state.bodies] == [False, True]
    with serving(drafting=False, answer=answer) as (url, _):
        assert "acceptance length: unknown" in client(url)


def test_the_client_says_what_is_missing() -> None:
    command = [sys.executable, EXAMPLES / CLIENT, "--url", "http://127.0.0.1:9"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 1
    assert ended.stderr.startswith("http://127.0.0.1:9 does not answer (") and ended.stderr.count("\n") == 1


def test_the_client_reads_chats_and_sglangs_metrics() -> None:
    module: ModuleType = load(CLIENT)
    choice = {"index": 0, "finish_reason": "stop", "logprobs": None}
    common = {"id": "", "created": 0, "model": ""}
    whole = {"role": "assistant", "content": "a"}
    for kind, name, part, text in (
        (Completion, "text_completion", {"text": "a"}, "a"),
        (ChatCompletion, "chat.completion", {"message": whole}, "a"),
        (ChatCompletionChunk, "chat.completion.chunk", {"delta": {"content": "a"}}, "a"),
        (ChatCompletionChunk, "chat.completion.chunk", {"delta": {"role": "assistant"}}, ""),
    ):
        answer: Any = kind.model_validate({**common, "object": name, "choices": [choice | part]})
        assert module.text_of(answer.choices[0]) == text
    steps, tokens = module.SGLANG
    assert module.acceptance_length({steps: 10, tokens: 30}, {steps: 20, tokens: 55}) == "2.50"
    assert module.acceptance_length({}, {steps: 20, tokens: 50}) == "2.50"
