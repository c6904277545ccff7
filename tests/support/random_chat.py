"""A tiny random chat model and its conversations, made in a second, for tests that do not depend on content."""

from __future__ import annotations

from pathlib import Path

import torch

from mtpc.lab.text.byte_tokenizer import VOCAB_SIZE, build_byte_tokenizer
from mtpc.lab.text.conversations import FILE, Conversation
from tests.mtpc.lab.chat_folder import TEMPLATE
from tests.support.random_models import make_target

START, LENGTH = 12, 48  # tokens of a question, and of a conversation


def make_chat_target(folder: Path) -> Path:
    """A byte-level Llama of two layers whose tokenizer has a chat template."""
    make_target(folder)
    tokenizer = build_byte_tokenizer()
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder


def make_conversations(folder: Path, count: int) -> Path:
    """Write `count` conversations of random tokens, and return their folder."""
    generator = torch.Generator().manual_seed(0)
    lines = []
    for index in range(count):
        tokens = tuple(torch.randint(VOCAB_SIZE, (LENGTH,), generator=generator).tolist())
        lines.append(Conversation(index, "chat", f"question {index}", "answer", tokens, START, "length").to_json())
    folder.mkdir(parents=True)
    (folder / FILE).write_text("\n".join(lines) + "\n")
    return folder
