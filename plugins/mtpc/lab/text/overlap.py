"""How much of a target's vocabulary, and of its texts, a drafter with another tokenizer can write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import numpy as np
from transformers import PreTrainedTokenizerBase

from mtpc.vocabulary.token_bytes import TokenBytes, intersection, token_bytes

# Share of a text's tokens, in either tokenizer, that must be in both vocabularies for SAME and TLI. A draft with TLI
# ends where the draft model needs a token of its own. At 87% SLEM accepts more than TLI, at any temperature.
ENOUGH = 0.99
PairMethod = Literal["same", "tli", "slem", "slrs"]
SAME: Final = "same"
TLI: Final = "tli"
SLEM: Final = "slem"
SLRS: Final = "slrs"
REASONS: dict[PairMethod, str] = {
    SAME: "the same vocabulary, or nearly, in any order: the engine's own draft_model needs no translation",
    TLI: "token-level intersection: nearly all tokens of the text, in either tokenizer, are in both vocabularies",
    SLEM: "string-level exact match: too many tokens of the text are in one vocabulary alone",
    SLRS: "string-level rejection sampling: the drafter writes bytes, so every target token has one decomposition",
}


class Overlap(NamedTuple):
    """What two tokenizers have in common.

    Attributes:
        draft_tokens: Number of the drafter's tokens, special ones left out.
        target_tokens: Number of the target's, likewise.
        common: Number of tokens that both have, by their bytes.
        text_tokens: Number of tokens of the text in the target's tokenizer; 0 without a text.
        text_share: Share of them that the drafter has as well; NaN without a text.
        draft_share: Share of the text's tokens in the drafter's tokenizer that the target has; NaN without a text.
        method: Which method fits, a key of `REASONS`.
    """

    draft_tokens: int
    target_tokens: int
    common: int
    text_tokens: int
    text_share: float
    draft_share: float
    method: PairMethod


def overlap(draft: PreTrainedTokenizerBase, target: PreTrainedTokenizerBase, ids: Sequence[int]) -> Overlap:
    """Compare two tokenizers by the bytes of their tokens (arXiv:2502.05202, tables 9 and 10).

    Args:
        draft: The drafter's tokenizer.
        target: The target's tokenizer.
        ids: Tokens of texts in the target's tokenizer, which are counted.

    Returns:
        The overlap by tokens and by frequency, and the method that fits.

    Raises:
        MTPCError: See `mtpc.vocabulary.token_bytes.intersection`.
    """
    of_draft, of_target = token_bytes(draft), token_bytes(target)
    both = intersection(of_draft, of_target)
    own = draft(of_target.text_of(ids).decode(errors="replace"), add_special_tokens=False).input_ids
    share, draft_share = _share(ids, both.target), _share(own, both.draft)
    draft_tokens, target_tokens = (sum(token is not None for token in each.tokens) for each in (of_draft, of_target))
    if of_draft.by_bytes().keys() <= of_target.by_bytes().keys() and share >= ENOUGH:
        method: PairMethod = SAME
    elif longest(of_draft) == 1:
        method = SLRS
    else:
        method = TLI if min(share, draft_share) >= ENOUGH else SLEM
    return Overlap(draft_tokens, target_tokens, len(both.draft), len(ids), share, draft_share, method)


def _share(ids: Sequence[int], common: np.ndarray) -> float:
    """Return the share of a text's tokens that are common; NaN without a text."""
    return float(np.isin(ids, common).mean()) if len(ids) else float("nan")


def longest(tokens: TokenBytes) -> int:
    """Return the number of bytes of the longest token."""
    return max((len(token) for token in tokens.tokens if token), default=0)
