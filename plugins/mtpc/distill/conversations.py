"""Conversations on disk: JSON Lines, one a line, appended to as they come."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mtpc.errors import MTPCError

FILE = "conversations.jsonl"
HELDOUT_PERCENT = 4


@dataclass(frozen=True)
class Conversation:
    """One question and the target's answer.

    tokens: ids of the whole conversation in the target's chat template, answer included; the answer starts at
    ``start``.  finish: "stop" where the target ended it, "length" where the limit did.
    """

    index: int  # its number; gaps are conversations that were left out
    kind: str
    user: str
    answer: str
    tokens: tuple[int, ...]
    start: int
    finish: str

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
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                values = json.loads(line)
                yield Conversation(**{**values, "tokens": tuple(values["tokens"])})
            except (ValueError, TypeError, KeyError):
                raise MTPCError(
                    f"{path}, line {number}: expected a conversation as `mtpc distill` writes it."
                ) from None


def mend(folder: Path) -> None:
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
