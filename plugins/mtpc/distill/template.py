"""A chat template seen from both ends: how a user turn is opened and ended, and how an answer is asked for."""

from __future__ import annotations

from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from mtpc.errors import MTPCError

_MARK = "what the user says"


class ChatTemplate:
    """The template of a target folder.

    opening: the text that a user turn follows.  end: the token that ends a turn.

    Errors: `MTPCError` for a folder without a chat template, or one whose turns do not end in a token of their own.
    """

    def __init__(self, folder: Path) -> None:
        if not (folder / "tokenizer_config.json").is_file():
            raise MTPCError(f"{folder} is not a model folder with a tokenizer (no tokenizer_config.json).")
        self.tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder)
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
        return str(self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=answer))

    def opened_turn(self, words: str) -> list[int]:
        """The ids of a conversation whose user has said so much and goes on."""
        return self.encode(self.opening + words)

    def question(self, user: str) -> list[int]:
        """The ids after which the target answers."""
        return self.encode(self._render(user, answer=True))

    def encode(self, text: str) -> list[int]:
        """Ids of text in which the template has already put its special tokens."""
        return list(self.tokenizer(text, add_special_tokens=False).input_ids)
