"""Any bytes as the tokens of a tokenizer, also where the tokenizer would change a text."""

from __future__ import annotations

import json
import re
from typing import Any

from mtpc.vocabulary.token_bytes import token_bytes

ESCAPED = re.compile("([\udc80-\udcff]+)")  # how Python writes bytes that are no UTF-8
LONGEST_MATCH = 16  # bytes; a bound for the search: few tokens are longer
SHORTEST_HALVED = 16  # characters; a shorter text that the tokenizer changes is matched as a whole


class ByteEncoder:
    """A tokenizer that gives back every byte.

    Attributes:
        tokens: The bytes of its tokens.
    """

    def __init__(self, tokenizer: Any) -> None:
        """Make a private copy of a tokenizer, which adds nothing to a text and reads no special token in it.

        Args:
            tokenizer: One of transformers with a tokenizer.json.

        Raises:
            MTPCError: For a tokenizer that cannot decode single tokens.
        """
        from tokenizers import Tokenizer

        self.tokens = token_bytes(tokenizer)
        described = json.loads(tokenizer.backend_tokenizer.to_str())
        described |= {"truncation": None, "padding": None, "post_processor": None}
        described["normalizer"] = _replacements(described["normalizer"])
        _add_no_prefix(described["pre_tokenizer"])
        self._tokenizer = Tokenizer.from_str(json.dumps(described))
        self._tokenizer.encode_special_tokens = True
        self._matches = {text: each for text, each in self.tokens.by_bytes().items() if len(text) <= LONGEST_MATCH}

    def encode(self, text: bytes) -> list[int]:
        """Return tokens whose bytes, one after the other, are the text.

        Valid UTF-8 is tokenized as usual. Other bytes, and what the tokenizer would change, are covered by the longest
        tokens that match. Bytes that are no token are left out.

        Args:
            text: Any bytes.

        Returns:
            Ids, none of them special.
        """
        ids: list[int] = []
        for place, run in enumerate(ESCAPED.split(text.decode(errors="surrogateescape"))):
            ids += self._matching(run.encode(errors="surrogateescape")) if place % 2 else self._encode_characters(run)
        return ids

    def _encode_characters(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        if self.tokens.text_of(ids) == text.encode():
            return ids
        if len(text) < SHORTEST_HALVED:
            return self._matching(text.encode())
        half = len(text) // 2  # so that only the tokens near what the tokenizer changes are unusual
        return self._encode_characters(text[:half]) + self._encode_characters(text[half:])

    def _matching(self, text: bytes) -> list[int]:
        ids = []
        start = 0
        while start < len(text):
            for end in range(min(start + LONGEST_MATCH, len(text)), start, -1):
                if (token := self._matches.get(text[start:end])) is not None:
                    ids.append(token)
                    start = end
                    break
            else:
                start += 1
        return ids


def _replacements(normalizer: dict[str, Any] | None) -> dict[str, Any] | None:
    """Keep of a normalizer what writes spaces: other steps (Unicode forms, lower case, prefixes) change the text."""
    if normalizer is None:
        return None
    steps = [each for each in normalizer.get("normalizers", [normalizer]) if each["type"] == "Replace"]
    return {"type": "Sequence", "normalizers": steps}


def _add_no_prefix(pre_tokenizer: dict[str, Any] | None) -> None:
    if pre_tokenizer is None:
        return
    for each in pre_tokenizer.get("pretokenizers", [pre_tokenizer]):
        if "prepend_scheme" in each:  # of Metaspace
            each["prepend_scheme"] = "never"
        if "add_prefix_space" in each:  # of ByteLevel
            each["add_prefix_space"] = False
