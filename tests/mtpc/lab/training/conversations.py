"""Conversations of a tiny target, as if distilled: random questions, answered by the target."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from mtpc.lab.text.conversations import Conversation
from tests.support.tiny_models import VOCAB

QUESTION, ANSWER = 5, 20


def make_conversations(target: PreTrainedModel, count: int, seed: int = 0) -> list[Conversation]:
    """Answers of twenty tokens, sampled from the target."""
    torch.manual_seed(seed)
    tokens = torch.randint(VOCAB, (count, QUESTION))
    for _ in range(ANSWER):
        p = target(input_ids=tokens).logits[:, -1].softmax(-1)
        tokens = torch.cat([tokens, torch.multinomial(p, 1)], 1)
    kinds = ("chat", "code")
    return [
        Conversation(index, kinds[index % 2], f"question {index}", "answer", tuple(text), QUESTION, "length")
        for index, text in enumerate(tokens.tolist())
    ]
