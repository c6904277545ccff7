"""Conversations on disk: JSON Lines, one a line, appended to as they come."""

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
from mtpc.files.config_model import declared_json

FILE = "conversations.jsonl"
HELDOUT_PERCENT = 4

Natural = Annotated[int, Field(ge=0, lt=1 << 31)]


@dataclass(frozen=True)
class Conversation:
    """One question and the target's answer.

    tokens: ids of the whole conversation in the target's chat template, answer included; the answer starts at
    ``start``.  finish: "stop" where the target ended it, "length" where the limit did.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    index: Natural  # its number; gaps are conversations that were left out
    kind: str
    user: str
    answer: str
    tokens: tuple[Natural, ...]
    start: Annotated[Natural, Field(ge=1)]
    finish: Annotated[str, Field(pattern="^(stop|length)$")]

    @property
    def heldout(self) -> bool:
        """Kept from training; chosen by a hash of the question, so stable however much is added."""
        return hashlib.sha256(self.user.encode()).digest()[0] * 100 < HELDOUT_PERCENT * 256

    @property
    def answer_tokens(self) -> tuple[int, ...]:
        """The ids of the answer."""
        return self.tokens[self.start :]

    def to_json(self) -> str:
        """One line, without its end."""
        return json.dumps(dataclasses.asdict(self), ensure_ascii=False, separators=(",", ":"))


def read_conversations(folder: Path) -> Iterator[Conversation]:
    """The conversations of a folder, in the order in which they were written.

    Errors: `MTPCError` for a missing file or a line that is not a conversation.
    """
    path = folder / FILE
    if not path.is_file():
        raise MTPCError(f"{folder} holds no conversations (no {FILE}); `mtpc distill` writes them.")
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            expected = f"{path}, line {number}: expected a conversation as `mtpc distill` writes it"
            conversation = declared_json(Conversation, line, expected)
            if conversation.start > len(conversation.tokens):
                raise MTPCError(f"{expected}: its answer starts after its last token.")
            yield conversation


def check_tokens(conversations: Iterable[Conversation], vocab_size: int) -> None:
    """Errors: `MTPCError` for tokens that a target of this vocabulary has not."""
    if any(max(each.tokens) >= vocab_size for each in conversations):
        raise MTPCError("the conversations are of another target: they hold tokens beyond this one's vocabulary.")


def truncate_partial_line(folder: Path) -> None:
    """Take away a last line that a process left half written when it was ended."""
    path = folder / FILE
    if path.is_file():
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            with path.open("r+b") as file:
                file.truncate(whole)


def file_digest(folder: Path) -> str:
    """SHA-256 of the conversations, for provenance files."""
    return hashlib.sha256((folder / FILE).read_bytes()).hexdigest()
