"""Special tokens of two tokenizers with the same meaning, such as the end of a turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Spellings of each meaning, the more specific first: of a tokenizer that has several, the first counts.
MEANINGS = {
    "beginning of text": ("<|begin_of_text|>", "<bos>", "<s>", "[CLS]", "<|startoftext|>"),
    "end of text": ("<|end_of_text|>", "<|endoftext|>", "<eos>", "</s>", "[SEP]"),
    "start of turn": ("<|im_start|>", "<start_of_turn>", "<|start_header_id|>", "<|turn|>"),
    "end of turn": ("<|im_end|>", "<end_of_turn>", "<|eot_id|>", "<|end|>", "<|eot|>"),
    "padding": ("<|pad|>", "<pad>", "[PAD]"),
}


def same_meaning(target: Mapping[str, int], draft: Mapping[str, int]) -> dict[int, int]:
    """Map the target's special tokens to the drafter's.

    A token with the same spelling is taken first, then one with the same meaning. A drafter without a token for the end
    of a turn ends its text instead.

    Args:
        target: Ids of the target's special tokens, by spelling.
        draft: Ids of the drafter's, likewise.

    Returns:
        The drafter's id for each of the target's ids; tokens without a counterpart are left out.
    """
    found = {number: draft[spelling] for spelling, number in target.items() if spelling in draft}
    for meaning, spellings in MEANINGS.items():
        others = [draft[spelling] for spelling in spellings if spelling in draft]
        if meaning == "end of turn" and not others:
            others = [draft[spelling] for spelling in MEANINGS["end of text"] if spelling in draft]
        for spelling in spellings:
            if spelling in target and others:
                found.setdefault(target[spelling], others[0])
    return found


def special_tokens(tokenizer: Any) -> dict[str, int]:
    """Return the special tokens of a tokenizer: their ids by spelling.

    Args:
        tokenizer: One of transformers.
    """
    return {token.content: number for number, token in sorted(tokenizer.added_tokens_decoder.items()) if token.special}
