"""The chat model, and questions to it that its drafter was not trained on."""

from __future__ import annotations

import json
from pathlib import Path

from mtpc.lab.targets.smollm2 import make_smollm2
from mtpc.lab.text.chat_template import ChatTemplate
from tests.engine.conftest import WEIGHTS

DRAFTER = WEIGHTS / "smollm2-fastmtp"
QUESTIONS = WEIGHTS.parent / "benchmarks" / "chat_prompts.jsonl"
ACCEPTANCE_LENGTH = 1.6  # of five answers' beginnings, at least; weights/README.md has the figures of many


def make_chat_model(folder: Path) -> Path:
    """SmolLM2-135M-Instruct, out of its package."""
    make_smollm2(folder)
    return folder


def chat_prompts(target: Path, each: int) -> list[list[int]]:
    """As many questions of each kind, in tokens."""
    questions = [json.loads(line) for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]
    kinds = sorted({question["kind"] for question in questions})
    asked = [question["user"] for kind in kinds for question in [q for q in questions if q["kind"] == kind][:each]]
    return [ChatTemplate(target).question(user) for user in asked]
