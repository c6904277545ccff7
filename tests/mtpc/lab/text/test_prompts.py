"""Files of prompts: text, or what users say."""

from pathlib import Path

import pytest

from mtpc.errors import MTPCError
from mtpc.lab.text.prompts import prompt_length, read_prompts
from tests.mtpc.lab.chat_folder import ASKING, OPENING, make_chat_folder, text_of


def test_prompts_of_text_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text('{"text": "été\u2028"}\n\n{"kind": "code", "text": "x ="}\n')
    prompts = read_prompts(tmp_path / "prompts.jsonl")
    assert prompts == [("été\u2028", None), ("x =", "code")]
    assert [prompt_length(prompt) for prompt, _ in prompts] == [9, 4]


def test_what_a_user_says_goes_through_the_chat_template(tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text('{"kind": "chat", "user": "Hello"}\n')
    ((prompt, kind),) = read_prompts(tmp_path / "prompts.jsonl", make_chat_folder(tmp_path / "target"))
    assert kind == "chat"
    assert isinstance(prompt, list)
    assert text_of(prompt) == OPENING + "Hello" + ASKING.removeprefix("<|endoftext|>")
    assert prompt_length(prompt) == len(prompt)


def test_questions_of_spec_bench(tmp_path: Path) -> None:
    line = '{"question_id": 82, "category": "writing", "turns": ["Hello", "And then?"]}\n'
    (tmp_path / "questions.jsonl").write_text(line)
    ((prompt, kind),) = read_prompts(tmp_path / "questions.jsonl", make_chat_folder(tmp_path / "target"))
    assert kind == "writing"
    assert isinstance(prompt, list)
    assert text_of(prompt) == OPENING + "Hello" + ASKING.removeprefix("<|endoftext|>")


def test_problems_of_human_eval(tmp_path: Path) -> None:
    line = r'{"task_id": "HumanEval/0", "prompt": "def f():\n", "entry_point": "f", "canonical_solution": "    pass\n"}'
    (tmp_path / "HumanEval.jsonl").write_text(line)
    assert read_prompts(tmp_path / "HumanEval.jsonl") == [("def f():\n", "code")]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("", "holds no prompt"),
        ('{"turns": []}\n', "line 1: expected a JSON object"),
        ('{"turns": 5}\n', "line 1: expected a JSON object"),
        ('\n{"text": "a"}\n[]\n', "line 3: expected a JSON object"),
        ('{"text": "a"}\n{"prompt": "b"}\n', 'line 2: expected a JSON object with the field "text" or "user"'),
        ('{"user": "a"}\n{"text": "b"}\n', "mixes lines with"),
        ('{"user": "a"}\n', "need the chat template of --target"),
    ],
)
def test_prompts_that_cannot_be_read(lines: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text(lines)
    with pytest.raises(MTPCError, match=expected):
        read_prompts(tmp_path / "prompts.jsonl")


def test_a_target_without_a_chat_template(tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text('{"user": "Hello"}\n')
    with pytest.raises(MTPCError, match="has no chat template"):
        read_prompts(tmp_path / "prompts.jsonl", make_chat_folder(tmp_path / "target", template=None))
