"""Prompts out of a file, as every engine takes them: what is measured with and what drafters are scored on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from mtpc.errors import MTPCError

Prompt = str | list[int]  # text, or the ids of its tokens, with those of a chat template


class PromptOfKind(NamedTuple):
    """kind: the field "kind" of its line; None where there is none."""

    prompt: Prompt
    kind: str | None


def read_prompts(file: Path, target: Path | None = None) -> list[PromptOfKind]:
    """The prompts of a JSON Lines file: the field "text" of each line, or "user" of each line, what a user says.

    Text is completed as it is. What a user says becomes token ids, in the chat template of ``target``, a model folder.
    Spec-Bench's questions are read as well: the first of a line's "turns" is what a user says, of kind "category".

    Errors: `MTPCError` for a file or a line that cannot be read, or no target whose chat template could be used.
    """
    lines = _read_lines(file)
    spoken = ["user" in line for line in lines]
    if not any(spoken):
        return [PromptOfKind(str(line["text"]), line.get("kind")) for line in lines]
    if not all(spoken):
        raise MTPCError(f'{file} holds lines with "text" and lines with "user", but all must be of one kind.')
    if target is None:
        raise MTPCError(f'{file} holds what users say (the field "user"), which needs the chat template of --target.')
    from mtpc.distill.template import ChatTemplate

    template = ChatTemplate(target)
    return [PromptOfKind(template.question(str(line["user"])), line.get("kind")) for line in lines]


def _read_lines(file: Path) -> list[dict[str, Any]]:
    """Objects with the field "text" or "user"."""
    try:
        with file.open(encoding="utf-8", newline="\n") as stream:  # a line separator of Unicode ends no line of JSON
            texts = [(number, text) for number, text in enumerate(stream, 1) if text.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise MTPCError(f"the prompts {file} cannot be read: {error}.") from None
    if not texts:
        raise MTPCError(f"{file} holds no prompt.")
    lines: list[dict[str, Any]] = []
    for number, text in texts:
        try:
            line = json.loads(text)
            if "turns" in line:
                line = {"user": line["turns"][0], "kind": line.get("category")}
            lines.append(line)
            found = line.keys() & {"text", "user"}
        except (ValueError, AttributeError, TypeError, LookupError):
            found = set()
        if not found:
            raise MTPCError(f'{file}, line {number}: expected a JSON object with the field "text" or "user".')
    return lines


def prompt_length(prompt: Prompt) -> int:
    """Tokens of a prompt, at most: no tokenizer turns a text into more of them than its bytes and one."""
    return len(prompt.encode()) + 1 if isinstance(prompt, str) else len(prompt)
