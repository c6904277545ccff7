"""One request's text in the tokens of two tokenizers, at a cost that does not grow with the text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

from mtpc.draft_model.encoder import ByteEncoder
from mtpc.vocabulary.token_bytes import TokenBytes

MARGIN = 32  # bytes between a stable border and the end of the text
LONGEST_TAIL = 128  # bytes before the end from which on any border of tokens is taken for stable


class AlignedText:
    """The text of a request in the drafter's tokens; it only grows.

    After each step of the target, `extend` adds its tokens. The text since the last stable border is then tokenized
    anew, for the new bytes may join the last ones in other tokens.

    Attributes:
        ids: The drafter's tokens of the whole text.
        tail: The target's tokens since its own last stable border, see `continuation`.
    """

    def __init__(self, target: TokenBytes, drafter: ByteEncoder, special: Mapping[int, int]) -> None:
        """Begin with no text.

        Args:
            target: The target's tokens.
            drafter: The drafter's tokenizer.
            special: The drafter's special token of each special token of the target; others are left out.
        """
        self.ids: list[int] = []
        self.tail: list[int] = []
        self._target, self._drafter, self._special = target, drafter, special
        self._stable = 0  # ids before it never change
        self._text = b""  # the text of those from it on

    def extend(self, tokens: Sequence[int]) -> int:
        """Add tokens of the target.

        A special token is a border that no drafter token crosses. Bytes of a character that is not complete are tokens
        of their own until it is.

        Args:
            tokens: The next tokens of the request.

        Returns:
            How many of the drafter's tokens, from the first on, are the same as before.
        """
        start = self._stable
        before = self.ids[start:]
        text = [self._text]
        for token in tokens:
            piece = self._target.tokens[token] if 0 <= token < len(self._target.tokens) else None
            if piece is None:  # a special token, or one of the rows that pad the target's output head
                self._write(b"".join(text))
                self.ids += [self._special[token]] if token in self._special else []
                self._stable = len(self.ids)
                self.tail.clear()
                text = []
            else:
                text.append(piece)
                self.tail.append(token)
        self._write(b"".join(text))
        after = self.ids[start:]
        same = next((place for place, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), None)
        self._settle()
        del self.tail[: last_border(self._target, self.tail)]
        return start + (min(len(before), len(after)) if same is None else same)

    def _write(self, text: bytes) -> None:
        self._text = text
        self.ids[self._stable :] = self._drafter.encode(text)

    def _settle(self) -> None:
        """Move the border towards the end of the text."""
        tokens = self._drafter.tokens
        border = last_border(tokens, self.ids[self._stable :])
        settled = tokens.text_of(self.ids[self._stable : self._stable + border])
        if border and self._text.startswith(settled):
            self._stable += border
            self._text = self._text[len(settled) :]
        elif len(self._text) > 2 * LONGEST_TAIL:  # bytes were left out: where tokens begin is unknown
            self._stable = len(self.ids)
            self._text = b""


def last_border(tokens: TokenBytes, ids: Sequence[int]) -> int:
    """Return the index of the last token from which a text can be tokenized anew.

    Tokenizers split a text into words from left to right and join no tokens of two words. So added text can only change
    the last word, or the white space at the end. The border is therefore the space before a word, at least 32 bytes
    before the end. Where there is none in 128 bytes, as in Chinese, it is any border between tokens that far back.
    Which tokens are joined seldom depends on text at such a distance.

    Args:
        tokens: The bytes of the tokens.
        ids: The last tokens of a text, from an earlier border on.

    Returns:
        An index into ``ids``; 0 where only the earlier border is stable. The cost does not grow with their number.
    """
    size = 0
    for place in range(len(ids) - 1, 0, -1):
        piece = tokens.tokens[ids[place]] or b""
        size += len(piece)
        if size >= LONGEST_TAIL or (size >= MARGIN and piece.startswith(b" ")):
            return place
    return 0


def continuation(target: ByteEncoder, tail: Sequence[int], draft: bytes) -> list[int]:
    """Return the target's tokens of a drafter's text (SLEM, algorithm 2 of arXiv:2502.05202).

    The last one may still join what follows it; where the draft ends with white space, all tokens of that may.

    Args:
        target: The target's tokenizer.
        tail: The last tokens of the request, from a stable border on: `AlignedText.tail`.
        draft: What the drafter wrote after them.

    Returns:
        The tokens after ``tail``. Where a token of *tail + draft* would cross the end of the tail, those of the draft
        alone.
    """
    committed = target.tokens.text_of(tail)
    ids = target.encode(committed + draft)
    sizes = accumulate((len(target.tokens.tokens[each] or b"") for each in ids), initial=0)
    for place, size in enumerate(sizes):
        if size == len(committed):
            return ids[place:]
    return target.encode(draft)
