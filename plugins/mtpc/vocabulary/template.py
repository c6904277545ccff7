"""What a target's chat template says itself: it stands in every prompt, so it tells nothing of a request's language."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

_MARK = "what is said"
_CONVERSATIONS = (("user", "assistant", "user"), ("system", "user"))


class Template(NamedTuple):
    """pieces: what stands before, between and after what is said.  special: tokens that are no text anywhere."""

    pieces: tuple[tuple[int, ...], ...] = ()
    special: tuple[int, ...] = ()

    def said(self, tokens: np.ndarray) -> np.ndarray:
        """Which tokens, int64 [..., T], are not the template's, bool; a piece must be there as a whole."""
        said: np.ndarray = (tokens[..., None] != np.array(self.special, dtype=np.int64)).all(-1)
        for piece in self.pieces:
            places = tokens.shape[-1] - len(piece) + 1
            if places > 0:
                elsewhere = (np.lib.stride_tricks.sliding_window_view(tokens, len(piece), -1) != piece).any(-1)
                for number in range(len(piece)):
                    said[..., number : number + places] &= elsewhere
        return said

    def said_of_few(self, tokens: Sequence[int]) -> list[bool]:
        """`said` of so few tokens that arrays take longer than they do."""
        said = [token not in self.special for token in tokens]
        for piece in self.pieces:
            for start in range(len(tokens) - len(piece) + 1):
                if tuple(tokens[start : start + len(piece)]) == piece:
                    said[start : start + len(piece)] = [False] * len(piece)
        return said


def read_template(tokenizer: str) -> Template:
    """That of a tokenizer, by its folder or name; an empty one where transformers cannot read it.

    Engines serve such tokenizers too: what the template says then counts as text.
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
    """What the template puts around what these say; nothing where it refuses one of them."""
    messages = [{"role": role, "content": _MARK} for role in roles]
    try:
        rendered: str = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except Exception:
        return []
    return rendered.split(_MARK)
