"""A chat template seen from both ends: how a user turn is opened and ended, and how an answer is asked for."""

from __future__ import annotations

from pathlib import Path

import jinja2
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from mtpc.errors import MTPCError, first_line

_MARK = "what the user says"


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a target folder.

    Errors: `MTPCError` for a folder without one, or with a damaged one.
    """
    if not (folder / "tokenizer_config.json").is_file():
        raise MTPCError(f"{folder} is not a model folder with a tokenizer (no tokenizer_config.json).")
    try:
        return AutoTokenizer.from_pretrained(folder)
    except Exception as error:  # transformers raises whatever a damaged folder leads to
        raise MTPCError(f"{folder} holds a tokenizer that cannot be loaded: {first_line(error)}.") from None


class ChatTemplate:
    """The template of a target folder.

    opening: the text that a user turn follows.  end: the token that ends a turn.

    Errors: `MTPCError` as `load_tokenizer`, for a folder without a chat template, or for one that does not render or
    whose turns do not end in a token of their own.
    """

    def __init__(self, folder: Path) -> None:
        self.tokenizer = load_tokenizer(folder)
        if self.tokenizer.chat_template is None:
            raise MTPCError(f"{folder} has no chat template, so it cannot write both sides of a conversation.")
        rendered = self._render(_MARK, answer=False)
        self.opening, mark, rest = rendered.partition(_MARK)
        ids = self.tokenizer(rest.strip(), add_special_tokens=False).input_ids
        if not mark or not ids or ids[0] not in self.tokenizer.all_special_ids:
            raise MTPCError(f"{folder}: the chat template does not end a user turn with a special token.")
        self.end: int = ids[0]

    def _render(self, user: str, *, answer: bool) -> str:
        messages = [{"role": "user", "content": user}]
        try:
            return str(self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=answer))
        except jinja2.TemplateError as error:
            raise MTPCError(f"the chat template of the target is damaged: {first_line(error)}.") from None

    def opened_turn(self, words: str) -> list[int]:
        """The ids of a conversation whose user has said so much and goes on."""
        return self.encode(self.opening + words)

    def question(self, user: str) -> list[int]:
        """The ids after which the target answers."""
        return self.encode(self._render(user, answer=True))

    def encode(self, text: str) -> list[int]:
        """Ids of text in which the template has already put its special tokens."""
        return list(self.tokenizer(text, add_special_tokens=False).input_ids)
