"""Conversations on disk: JSON Lines, one conversation per line, appended as they are generated."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field

from mtpc.errors import MTPCError
from mtpc.files.config_model import validated_json
from mtpc.lab.text.heldout import is_heldout

FILE = "conversations.jsonl"

Natural = Annotated[int, Field(ge=0, lt=1 << 31)]


@dataclass(frozen=True)
class Conversation:
    """One question with the target's answer.

    Attributes:
        index: Number of the conversation. Discarded conversations leave gaps.
        kind: Kind of the question.
        user: Text of the question.
        answer: Text of the answer.
        tokens: Token ids of question and answer in the target's chat template.
        start: Position of the answer's first token.
        finish: "stop" if the answer ended with an end token, "length" if it reached the limit.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    index: Natural
    kind: str
    user: str
    answer: str
    tokens: tuple[Natural, ...]
    start: Annotated[Natural, Field(ge=1)]
    finish: Annotated[str, Field(pattern="^(stop|length)$")]

    @property
    def heldout(self) -> bool:
        """Whether it is held out from training, by a hash of the question."""
        return is_heldout(self.user)

    @property
    def answer_tokens(self) -> tuple[int, ...]:
        """Token ids of the answer."""
        return self.tokens[self.start :]

    def to_json(self) -> str:
        """Return the conversation as one line of JSON, without a newline."""
        return json.dumps(dataclasses.asdict(self), ensure_ascii=False, separators=(",", ":"))


def read_conversations(folder: Path) -> Iterator[Conversation]:
    """Read the conversations of a folder.

    Args:
        folder: Folder that `mtpc distill` has written.

    Yields:
        Conversations in the order in which they were written.

    Raises:
        MTPCError: The file is missing, or a line is not a conversation.
    """
    path = folder / FILE
    if not path.is_file():
        raise MTPCError(f"{folder} holds no conversations (no {FILE}); `mtpc distill` writes them.")
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            expected = f"{path}, line {number}: expected a conversation as `mtpc distill` writes it"
            conversation = validated_json(Conversation, line, expected)
            if conversation.start > len(conversation.tokens):
                raise MTPCError(f"{expected}: its answer starts after its last token.")
            yield conversation


def check_tokens(conversations: Iterable[Conversation], vocab_size: int) -> None:
    """Check that conversations belong to a target with this vocabulary.

    Args:
        conversations: Conversations to check.
        vocab_size: Size of the target's vocabulary.

    Raises:
        MTPCError: A token is not in the vocabulary.
    """
    if any(max(each.tokens) >= vocab_size for each in conversations):
        raise MTPCError(
            f"the conversations are of another target: they hold tokens beyond this target's vocabulary of "
            f"{vocab_size}; generate new ones with `mtpc distill`."
        )


def truncate_partial_line(folder: Path) -> None:
    """Remove an incomplete last line, which an interrupted process leaves behind.

    Args:
        folder: Folder of conversations, which may hold none yet.
    """
    path = folder / FILE
    if path.is_file():
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            with path.open("r+b") as file:
                file.truncate(whole)


def file_digest(folder: Path) -> str:
    """Return the SHA-256 of the conversations, for provenance files.

    Args:
        folder: Folder of conversations.
    """
    return hashlib.sha256((folder / FILE).read_bytes()).hexdigest()
