"""Third-party prompts from a file, and questions about earlier outputs of the target."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mtpc.errors import MTPCError
from mtpc.lab.distill import run
from mtpc.lab.distill.documents import DOCUMENT_TOKENS, LEADING_QUESTIONS, MAX_DOCUMENTS, TRAILING_QUESTIONS, Documents
from mtpc.lab.distill.questions import Question, read_questions
from mtpc.lab.distill.run import Distillation
from mtpc.lab.distill.settings import MAX_PROMPT_TOKENS, DistillationPlan
from mtpc.lab.text.chat_template import ChatTemplate
from mtpc.lab.text.conversations import read_conversations
from mtpc.lab.text.heldout import is_heldout
from tests.mtpc.lab.chat_folder import make_chat_folder
from tests.mtpc.lab.distill.chatter import chatter
from tests.mtpc.lab.servers.fake_server import serving

LINES = """{"text": "What is a heron?", "kind": "nature", "language": "en", "source": "a book"}

{"user": "Qu'est-ce qu'un héron ?", "kind": "nature", "language": "fr"}
{"text": "Name three wading birds."}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "questions.jsonl"
    path.write_text(LINES)
    return path


def test_every_line_is_a_question_of_a_kind_and_the_seed_draws_the_order(file: Path) -> None:
    kinds = {question.text: question.kind_of_conversation for question in read_questions(file, 0)}
    assert kinds == {
        "What is a heron?": "nature",
        "Qu'est-ce qu'un héron ?": "french",
        "Name three wading birds.": "question",
    }
    orders = {tuple(question.text for question in read_questions(file, seed)) for seed in range(20)}
    assert 3 < len(orders) <= 6
    assert read_questions(file, 3) == read_questions(file, 3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "holds no question"),
        ('{"text": "one"}\n{"words": "two"}\n', "line 2: expected a JSON object"),
        ('{"text": 5}\n', "line 1"),
        ('{"text": ""}\n', "line 1"),
        ("[" * 10_000, "line 1"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "other.jsonl").write_text(content)
    with pytest.raises(MTPCError, match=message):
        read_questions(tmp_path / "other.jsonl", 0)
    with pytest.raises(MTPCError, match="cannot be read"):
        read_questions(tmp_path, 0)


def test_questions_are_answered_once_each_and_then_the_target_asks_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Functions of the standard library may be longer than a prompt of bytes.
    monkeypatch.setattr(run, "source_code_question", lambda generator: f"What does f{generator.integers(10**6)} do?")
    template = ChatTemplate(make_chat_folder(tmp_path / "target"))
    words = iter(np.random.default_rng(0).permutation(1000).tolist())
    texts = [" ".join(f"word{next(words)}" for _ in range(6)) for _ in range(30)]
    questions = [Question(text=f"What is {text}?", kind="sums") for text in texts]
    questions += [
        Question(text="long " * MAX_PROMPT_TOKENS),
        questions[0],
        Question(text=" "),
        Question(text="为什么?"),
    ]
    plan = DistillationPlan(tokens=6000, concurrency=4)
    with serving(answer=chatter) as (url, _):
        first = Distillation(template, tmp_path / "out", plan, questions)
        first.run(url, "some-model", lambda tokens: None)
    found = list(read_conversations(tmp_path / "out"))
    asked = [each.user for each in found if each.kind == "sums"]
    assert 20 < len(asked) == len(set(asked))  # the rest of the answers were of no use
    assert all(each.kind == "sums" for each in found[: len(asked) - 4])
    assert {"chat", "reasoning"} <= {each.kind for each in found}
    assert not any(each.user.startswith("long ") for each in found)
    assert "为什么?" in {each.user for each in found}  # which would be too short for a question that the target asks
    assert first.discarded["question too short"] >= 1
    assert first.discarded["question too long"] == 1
    assert first.discarded["question seen before"] >= 1
    with serving(answer=chatter) as (url, _):
        more = Distillation(template, tmp_path / "out", DistillationPlan(tokens=7000, concurrency=4), questions)
        more.run(url, "some-model", lambda tokens: None)
    again = [each.user for each in read_conversations(tmp_path / "out") if each.kind == "sums"]
    assert len(again) == len(set(again))
    assert again[: len(asked)] == asked


def test_a_text_is_asked_about_whole() -> None:
    documents, generator = Documents(), np.random.default_rng(0)
    assert documents.question(generator) is None
    documents.add("too short", [1] * (DOCUMENT_TOKENS.start - 1))
    documents.add("too long", [1] * DOCUMENT_TOKENS.stop)
    assert documents.question(generator) is None
    for number in range(MAX_DOCUMENTS + 5):
        documents.add(f" text {number}.\n", [1] * DOCUMENT_TOKENS.start)
    asked = [documents.question(generator) for _ in range(2000)]
    assert {question.partition("\n\n")[0] for question in asked if question} >= set(LEADING_QUESTIONS)
    assert {question.partition("\n\n")[2] for question in asked if question} >= set(TRAILING_QUESTIONS)
    texts = {text for question in asked if question for text in question.split("\n\n") if text.startswith("text ")}
    assert 400 < len(texts) <= MAX_DOCUMENTS
    assert "text 4." not in texts
    assert not any(map(is_heldout, filter(None, asked)))  # drafters are trained on the text
