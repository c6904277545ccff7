"""Prompts out of a file, as every engine takes them: what is measured with and what drafters are scored on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BaseModel, Field

from mtpc.errors import MTPCError
from mtpc.files.config_model import declared_json

SHIPPED = Path(__file__).parent / "prompts.jsonl"  # held-out texts, chosen once

Prompt = str | list[int]  # text, or the ids of its tokens, with those of a chat template


class TextLine(BaseModel):
    """A line with text to go on with; what else it holds is not read, as in the next two."""

    text: str
    kind: str | int | None = None


class UserLine(BaseModel):
    """A line with what a user says."""

    user: str
    kind: str | int | None = None


class SpecBenchLine(BaseModel):
    """A line of Spec-Bench."""

    turns: Annotated[list[str], Field(min_length=1)]
    category: str | int | None = None


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
    said = [line for line in lines if isinstance(line, UserLine)]
    if not said:
        return [PromptOfKind(line.text, _name(line.kind)) for line in lines if isinstance(line, TextLine)]
    if len(said) < len(lines):
        raise MTPCError(f'{file} holds lines with "text" and lines with "user", but all must be of one kind.')
    if target is None:
        raise MTPCError(f'{file} holds what users say (the field "user"), which needs the chat template of --target.')
    from mtpc.lab.text.chat_template import ChatTemplate

    template = ChatTemplate(target)
    return [PromptOfKind(template.question(line.user), _name(line.kind)) for line in said]


def _name(kind: str | int | None) -> str | None:
    return None if kind is None else str(kind)


def _read_lines(file: Path) -> list[TextLine | UserLine]:
    try:
        with file.open("rb") as stream:
            texts = [(number, text) for number, text in enumerate(stream, 1) if text.strip()]
    except OSError as error:
        raise MTPCError(f"the prompts {file} cannot be read: {error}.") from None
    if not texts:
        raise MTPCError(f"{file} holds no prompt.")
    lines: list[TextLine | UserLine] = []
    for number, text in texts:
        expected = f'{file}, line {number}: expected a JSON object with the field "text" or "user"'
        line = declared_json(TextLine | UserLine | SpecBenchLine, text, expected)  # type: ignore[arg-type]  # a union is a type, too
        lines.append(UserLine(user=line.turns[0], kind=line.category) if isinstance(line, SpecBenchLine) else line)
    return lines


def prompt_length(prompt: Prompt) -> int:
    """Tokens of a prompt, at most: no tokenizer turns a text into more of them than its bytes and one."""
    return len(prompt.encode()) + 1 if isinstance(prompt, str) else len(prompt)
