"""Prompts for the target: from a corpus, from conversations, from a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mtpc.errors import MTPCError
from mtpc.lab.evaluation.prompts import corpus_prompts, heldout_questions, prompts_of_file
from mtpc.lab.text.conversations import Conversation
from tests.mtpc.lab.chat_folder import make_chat_folder
from tests.mtpc.lab.corpus_folder import make_corpus


def test_evenly_spaced_prompts_of_the_heldout_split(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, 50)
    target = make_chat_folder(tmp_path / "target")
    prompts = corpus_prompts(corpus, target, 4, 30)
    assert not prompts.stop_at_end
    assert list(prompts.by_kind) == ["prose", "code"]
    for kind, found in prompts.by_kind.items():
        text = corpus.heldout(kind).tolist()
        assert found == [text[start : start + 30] for start in (0, 189, 379, 569)]
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 40}))
    shorter = corpus_prompts(corpus, target, 4, 30)
    assert {len(prompt) for found in shorter.by_kind.values() for prompt in found} == {20}


def conversation(number: int, kind: str) -> Conversation:
    return Conversation(number, kind, f"question {number}", "x", tuple(range(number, number + 9)), 5, "stop")


def test_questions_that_are_held_out_by_kind() -> None:
    every = [conversation(number, ("code", "chat")[number % 2]) for number in range(200)]
    heldout = [each for each in every if each.heldout]
    prompts = heldout_questions(every, 2)
    assert prompts.stop_at_end
    assert list(prompts.by_kind) == ["chat", "code"]
    for kind, found in prompts.by_kind.items():
        assert found == [list(each.tokens[:5]) for each in heldout if each.kind == kind][:2]
    assert heldout_questions([], 2).by_kind == {}


def test_a_file_of_questions(tmp_path: Path) -> None:
    lines = [{"kind": "code", "user": "a"}, {"user": "b"}, {"kind": "chat", "user": "c"}, {"kind": "code", "user": "d"}]
    file = tmp_path / "questions.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    target = make_chat_folder(tmp_path / "target")
    prompts = prompts_of_file(file, target, 1)
    assert prompts.stop_at_end
    assert {kind: len(found) for kind, found in prompts.by_kind.items()} == {"chat": 1, "code": 1, "other": 1}
    whole = prompts_of_file(file, target)
    assert len(whole.by_kind["code"]) == 2
    assert whole.by_kind["code"][0] == prompts.by_kind["code"][0]


def test_a_file_of_text(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"kind": "prose", "text": "And it came"}\n')
    prompts = prompts_of_file(file, make_chat_folder(tmp_path / "target"))
    assert not prompts.stop_at_end
    assert prompts.by_kind == {"prose": [list(b"And it came")]}


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(MTPCError, match="cannot be read"):
        prompts_of_file(tmp_path / "nowhere", tmp_path)
