"""Questions about earlier answers of the target: summarize, translate, rewrite."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from mtpc.lab.text.heldout import is_heldout

MAX_DOCUMENTS = 512  # latest answers that are kept
DOCUMENT_TOKENS = range(48, 320)  # length of an answer that is kept
LEADING_QUESTIONS = (
    "Summarize the following text in two sentences.",
    "Summarize this:",
    "What are the main points of this text?",
    "Rewrite this paragraph so that it is easier to read:",
    "Correct the mistakes in this text:",
    "Translate the following text into French:",
    "Translate the following text into Spanish:",
    "Translate the following text into German:",
    "Give this text a title and explain your choice:",
    "List the names and numbers in this text:",
    "Continue this text:",
    "Write three questions that this text answers, with their answers:",
)
TRAILING_QUESTIONS = (
    "Summarize the text above.",
    "Question: what does the text above say first? Answer:",
    "Answer in one sentence: what is the text above about?",
    "Which claims of the text above are the most important ones, and why?",
)


class Documents:
    """Latest answers of the target, as texts for new questions. ``add`` answers, then draw a ``question``."""

    def __init__(self) -> None:
        self._texts: deque[str] = deque(maxlen=MAX_DOCUMENTS)

    def add(self, text: str, tokens: Sequence[int]) -> None:
        """Keep an answer if its number of tokens is in `DOCUMENT_TOKENS`."""
        if len(tokens) in DOCUMENT_TOKENS:
            self._texts.append(text.strip())

    def question(self, generator: np.random.Generator) -> str | None:
        """Return a user turn about a random text, or None if there is no text yet.

        It is never one that is held out: drafters are trained on its text.
        """
        if not self._texts:
            return None
        while is_heldout(question := self._draw(generator)):
            pass
        return question

    def _draw(self, generator: np.random.Generator) -> str:
        text = self._texts[int(generator.integers(len(self._texts)))]
        number = int(generator.integers(len(LEADING_QUESTIONS) + len(TRAILING_QUESTIONS)))
        if number < len(LEADING_QUESTIONS):
            return f"{LEADING_QUESTIONS[number]}\n\n{text}"
        return f"{text}\n\n{TRAILING_QUESTIONS[number - len(LEADING_QUESTIONS)]}"
