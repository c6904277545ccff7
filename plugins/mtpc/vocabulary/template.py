"""The target's chat template: its fixed text is in every prompt, so language detection skips it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

_MARK = "what is said"
_CONVERSATIONS = (("user", "assistant", "user"), ("system", "user"))


class Template(NamedTuple):
    """Tokens of a chat template.

    Attributes:
        pieces: Token sequences before, between and after the contents of messages.
        special: Special tokens, which are no text anywhere.
    """

    pieces: tuple[tuple[int, ...], ...] = ()
    special: tuple[int, ...] = ()

    def content_mask(self, tokens: np.ndarray) -> np.ndarray:
        """Return which tokens are not the template's, bool [..., T]; a piece only counts as a whole.

        Args:
            tokens: Tokens of texts, int64 [..., T].
        """
        content_mask: np.ndarray = (tokens[..., None] != np.array(self.special, dtype=np.int64)).all(-1)
        for piece in self.pieces:
            places = tokens.shape[-1] - len(piece) + 1
            if places > 0:
                elsewhere = (np.lib.stride_tricks.sliding_window_view(tokens, len(piece), -1) != piece).any(-1)
                for number in range(len(piece)):
                    content_mask[..., number : number + places] &= elsewhere
        return content_mask

    def content_mask_of_few(self, tokens: Sequence[int]) -> list[bool]:
        """Return `content_mask` of a short text; for a few tokens this is faster than arrays."""
        content_mask = [token not in self.special for token in tokens]
        for piece in self.pieces:
            for start in range(len(tokens) - len(piece) + 1):
                if tuple(tokens[start : start + len(piece)]) == piece:
                    content_mask[start : start + len(piece)] = [False] * len(piece)
        return content_mask


def read_template(tokenizer: str) -> Template:
    """Return the chat template of a tokenizer; an empty one if transformers cannot read the tokenizer.

    Engines serve such tokenizers too; the template's tokens then count as text.

    Args:
        tokenizer: Folder or name of the tokenizer.
    """
    from transformers import AutoTokenizer

    try:
        read = AutoTokenizer.from_pretrained(tokenizer)
    except Exception:
        return Template()
    texts = [] if read.chat_template is None else [text for roles in _CONVERSATIONS for text in _around(read, roles)]
    pieces = (tuple(read(text, add_special_tokens=False).input_ids) for text in texts)
    return Template(tuple(dict.fromkeys(piece for piece in pieces if piece)), tuple(read.all_special_ids))


def _around(tokenizer: Any, roles: tuple[str, ...]) -> list[str]:
    """Return the text that the template puts around messages of these roles; empty if it refuses a role."""
    messages = [{"role": role, "content": _MARK} for role in roles]
    try:
        rendered: str = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except Exception:
        return []
    return rendered.split(_MARK)
