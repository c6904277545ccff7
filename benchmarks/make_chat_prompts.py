"""Writes benchmarks/chat_prompts.jsonl: questions for a chat model that no drafter here was trained on.

    python -m benchmarks.make_chat_prompts CONVERSATIONS

CONVERSATIONS is a folder that `mtpc distill` has written.  Of its held-out questions those are taken that are short and
whose answer was not over at once, in the order of a hash, so that a longer run of the same only adds to the choice.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.questions import KINDS
from mtpc.lab.text.conversations import Conversation, read_conversations

EACH = 12  # questions of each kind
SHORTEST, LONGEST = 20, 500  # characters of a question
ANSWER = 48  # tokens of an answer, at least
WITHOUT = ("cialis", "viagra")  # what spam has left in the target


def suits(conversation: Conversation) -> bool:
    """Whether a conversation is one to measure with."""
    user = conversation.user
    if not conversation.heldout or any(word in user.lower() for word in WITHOUT):
        return False
    return SHORTEST <= len(user) <= LONGEST and len(conversation.answer_tokens) >= ANSWER


def digest(user: str) -> bytes:
    """What questions are put in order by: not what holds them out, of which only the first byte is left to chance."""
    return hashlib.sha256(f"prompt {user}".encode()).digest()


def choose(conversations: Iterable[Conversation]) -> Iterator[dict[str, str]]:
    """``EACH`` questions of each kind, the kinds one after the other."""
    users: dict[str, set[str]] = {}
    for each in filter(suits, conversations):
        users.setdefault(KINDS.get(each.kind, each.kind), set()).add(each.user)
    for kind, found in sorted(users.items()):
        for user in sorted(found, key=digest)[:EACH]:
            yield {"kind": kind, "user": user}


def main() -> None:
    """Write the file beside this script."""
    lines = [json.dumps(prompt, ensure_ascii=False) for prompt in choose(read_conversations(Path(sys.argv[1])))]
    (Path(__file__).parent / "chat_prompts.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
