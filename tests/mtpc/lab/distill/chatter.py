"""A model for the fake server: it continues a user turn with random words, and answers with other ones."""

from __future__ import annotations

import random
from typing import Any

from tests.mtpc.lab.chat_folder import END, text_of

WORDS = [f"word{i}" for i in range(40)]
REPETITIVE, ENDLESS, SHORT, SAME = 5, 6, 7, 8  # seeds modulo 20 with something wrong


def chatter(body: dict[str, Any], ids: bool = True) -> dict[str, Any]:
    """The choice of a completion, a function of the prompt and the seed."""
    prompt, fault = text_of(body["prompt"]), body["seed"] % 20
    answering = prompt.endswith("assistant: ")
    generator = random.Random(f"{body['seed']} {answering}")
    text = " " + " ".join(generator.choices(WORDS, k=12))
    finish = "stop"
    if fault == ENDLESS and not answering:
        finish = "length"
    elif fault == SHORT and answering:
        text = "no"
    elif fault == SAME and answering:
        text = "the very same answer to whatever question you may ask me"
    elif fault == REPETITIVE and answering:
        text = "again and " * 30
        finish = "length"
    choice: dict[str, Any] = {"text": text, "finish_reason": finish}
    if ids:
        choice["token_ids"] = [*text.encode(), *[END] * (finish == "stop")]
    return choice
