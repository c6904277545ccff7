"""Prompts from a file, for measuring engines and evaluating drafters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BaseModel, Field

from mtpc.errors import MTPCError
from mtpc.files.config_model import validated_json

SHIPPED = Path(__file__).parent / "prompts.jsonl"  # bundled prompts: held-out texts

Prompt = str | list[int]  # text, or the ids of its tokens, with those of a chat template


class TextLine(BaseModel):
    """Line with text to continue. Other fields are ignored, here and in the next classes."""

    text: str
    kind: str | int | None = None


class UserLine(BaseModel):
    """Line with a user turn."""

    user: str
    kind: str | int | None = None


class SpecBenchLine(BaseModel):
    """Line of Spec-Bench's file of questions."""

    turns: Annotated[list[str], Field(min_length=1)]
    category: str | int | None = None


class HumanEvalLine(BaseModel):
    """Line of HumanEval's file of problems: a function to continue."""

    prompt: str
    task_id: str


Line = TextLine | UserLine | SpecBenchLine | HumanEvalLine


class PromptOfKind(NamedTuple):
    """Prompt with its kind.

    Attributes:
        prompt: Text, or token ids in the target's chat template.
        kind: Field "kind" of the line, or None.
    """

    prompt: Prompt
    kind: str | None


def read_prompts(file: Path, target: Path | None = None) -> list[PromptOfKind]:
    """Read the prompts of a JSON Lines file.

    Every line has the field "text" (text to continue), or every line has "user" (a user turn). Spec-Bench's questions
    are also read: the first of "turns" is the user turn, "category" its kind. So are HumanEval's problems: "prompt" is
    text of the kind "code".

    Args:
        file: File to read.
        target: Folder of the target, whose chat template is applied to user turns. Not needed for text.

    Returns:
        Prompts in the order of the file. User turns are token ids.

    Raises:
        MTPCError: The file or a line cannot be read, or user turns lack a target with a chat template.
    """
    lines = _read_lines(file)
    users = [line for line in lines if isinstance(line, UserLine)]
    if not users:
        return [PromptOfKind(line.text, _name(line.kind)) for line in lines if isinstance(line, TextLine)]
    if len(users) < len(lines):
        raise MTPCError(f'{file} mixes lines with "text" and lines with "user"; put them into two files.')
    if target is None:
        raise MTPCError(f'{file} holds user turns (the field "user"), which need the chat template of --target.')
    from mtpc.lab.text.chat_template import ChatTemplate

    template = ChatTemplate(target)
    return [PromptOfKind(template.question(line.user), _name(line.kind)) for line in users]


def read_user_turns(file: Path) -> list[str]:
    """Return the user turns of a JSON Lines file as text, see `read_prompts`; none if its lines hold text to continue.

    Raises:
        MTPCError: The file or a line cannot be read.
    """
    return [line.user for line in _read_lines(file) if isinstance(line, UserLine)]


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
        line: Line = validated_json(Line, text, expected)  # type: ignore[arg-type]  # a union
        if isinstance(line, SpecBenchLine):
            line = UserLine(user=line.turns[0], kind=line.category)
        lines.append(TextLine(text=line.prompt, kind="code") if isinstance(line, HumanEvalLine) else line)
    return lines


def prompt_length(prompt: Prompt) -> int:
    """Return an upper bound of the tokens of a prompt.

    Args:
        prompt: Text, whose tokens are at most its bytes and one more, or token ids.
    """
    return len(prompt.encode()) + 1 if isinstance(prompt, str) else len(prompt)
