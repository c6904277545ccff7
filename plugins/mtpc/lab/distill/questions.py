"""Questions out of a file, for the target to answer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import AliasChoices, BaseModel, Field

from mtpc.errors import MTPCError
from mtpc.files.config_model import declared_json

# The kinds of conversations in other languages (`mtpc.lab.distill.topics`), by the codes that files give.
OTHER_LANGUAGES = {"de": "german", "es": "spanish", "fr": "french", "it": "italian", "pt": "portuguese"}


class Question(BaseModel):
    """A line of such a file; what else it holds is not read."""

    text: Annotated[str, Field(min_length=1, validation_alias=AliasChoices("text", "user"))]
    kind: Annotated[str, Field(min_length=1)] = "question"
    language: str = "en"

    @property
    def kind_of_conversation(self) -> str:
        """Its kind, or its language where that is another than English."""
        return OTHER_LANGUAGES.get(self.language, self.kind)


def read_questions(file: Path, seed: int) -> list[Question]:
    """The questions of a JSON Lines file, in an order that the seed draws.

    Errors: `MTPCError` for a file that cannot be read, or a line that holds no question.
    """
    questions = []
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    expected = f'{file}, line {number}: expected a JSON object with the field "text" or "user"'
                    questions.append(declared_json(Question, line, expected))
    except OSError as error:
        raise MTPCError(f"the questions {file} cannot be read: {error}.") from None
    if not questions:
        raise MTPCError(f"{file} holds no question.")
    return [questions[i] for i in np.random.default_rng(seed).permutation(len(questions))]
