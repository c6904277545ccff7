"""Questions from a file, for the target to answer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import AliasChoices, BaseModel, Field

from mtpc.errors import MTPCError
from mtpc.files.config_model import validated_json

# Kinds of conversations in other languages (`mtpc.lab.distill.topics`), by language code.
OTHER_LANGUAGES = {"de": "german", "es": "spanish", "fr": "french", "it": "italian", "pt": "portuguese"}


class Question(BaseModel):
    """Line of a file of questions. Other fields are ignored.

    Attributes:
        text: User turn, from the field "text" or "user".
        kind: Kind of the question.
        language: Language code of the question.
    """

    text: Annotated[str, Field(min_length=1, validation_alias=AliasChoices("text", "user"))]
    kind: Annotated[str, Field(min_length=1)] = "question"
    language: str = "en"

    @property
    def kind_of_conversation(self) -> str:
        """Kind of the conversation: the language for other languages than English, else ``kind``."""
        return OTHER_LANGUAGES.get(self.language, self.kind)


def read_questions(file: Path, seed: int) -> list[Question]:
    """Read the questions of a JSON Lines file in random order.

    Args:
        file: File to read.
        seed: Seed of the order.

    Returns:
        The shuffled questions.

    Raises:
        MTPCError: The file cannot be read, holds no question, or has a line without one.
    """
    questions = []
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    expected = f'{file}, line {number}: expected a JSON object with the field "text" or "user"'
                    questions.append(validated_json(Question, line, expected))
    except OSError as error:
        raise MTPCError(f"--questions {file} cannot be read: {error}.") from None
    if not questions:
        raise MTPCError(f"--questions {file} holds no question.")
    return [questions[i] for i in np.random.default_rng(seed).permutation(len(questions))]
