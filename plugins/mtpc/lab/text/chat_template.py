"""Chat templates, for prompts that the target answers and for user turns that it continues."""

from __future__ import annotations

from pathlib import Path

import jinja2
from transformers import PreTrainedTokenizerBase

from mtpc.draft_model import pair
from mtpc.errors import MTPCError, first_line

_MARK = "text of the user turn"


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a target.

    Args:
        folder: Folder of the target.

    Returns:
        The tokenizer.

    Raises:
        MTPCError: The folder has no tokenizer, or a damaged one.
    """
    if not (folder / "tokenizer_config.json").is_file():
        raise MTPCError(f"{folder} is not a model folder with a tokenizer (no tokenizer_config.json).")
    tokenizer: PreTrainedTokenizerBase = pair.load_tokenizer(folder)
    return tokenizer


class ChatTemplate:
    """Chat template of a target.

    Args:
        folder: Folder of the target.

    Attributes:
        tokenizer: Tokenizer of the target.
        opening: Text before a user turn.
        end: Token that ends a turn.

    Raises:
        MTPCError: The folder has no tokenizer or no chat template, or the template does not render, or its turns do
            not end with a special token.
    """

    def __init__(self, folder: Path) -> None:
        self.tokenizer = load_tokenizer(folder)
        if self.tokenizer.chat_template is None:
            raise MTPCError(f"{folder} has no chat template; use a chat model, or prompts of plain text.")
        rendered = self._render(_MARK, answer=False)
        self.opening, mark, rest = rendered.partition(_MARK)
        ids = self.tokenizer(rest.strip(), add_special_tokens=False).input_ids
        if not mark or not ids or ids[0] not in self.tokenizer.all_special_ids:
            raise MTPCError(f"{folder}: the chat template does not end a user turn with a special token.")
        self.end: int = ids[0]

    def _render(self, user: str, *, answer: bool, system: str | None = None) -> str:
        instructions = [] if system is None else [{"role": "system", "content": system}]
        messages = [*instructions, {"role": "user", "content": user}]
        try:
            return str(self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=answer))
        except jinja2.TemplateError as error:
            raise MTPCError(f"the chat template of the target is damaged: {first_line(error)}.") from None

    def opened_turn(self, words: str) -> list[int]:
        """Return the token ids of a conversation up to the first words of an unfinished user turn."""
        return self.encode(self.opening + words)

    def question(self, user: str, system: str | None = None) -> list[int]:
        """Return the token ids of a prompt with one user turn, which the target answers.

        Args:
            user: The user turn.
            system: System prompt; None: that of the template, if it has one.
        """
        return self.encode(self._render(user, answer=True, system=system))

    def encode(self, text: str) -> list[int]:
        """Return the token ids of text that already contains the template's special tokens."""
        return list(self.tokenizer(text, add_special_tokens=False).input_ids)
