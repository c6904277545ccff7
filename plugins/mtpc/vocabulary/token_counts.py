"""How often the tokens of texts end, and where: counted when a pair is made, stored with its checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors.torch import save_file

from mtpc.errors import MTPCError
from mtpc.files.weights import read_weights
from mtpc.vocabulary.token_bytes import TokenBytes
from mtpc.vocabulary.token_trie import TokenTrie, count_pauses, token_trie

COUNTS = "token_counts.safetensors"


class TokenEnds(NamedTuple):
    """Counts of each token of the target in texts.

    Attributes:
        occurrences: int64 [V].
        pauses: int64 [V], those before a byte with which a longer token continues, see `count_pauses`.
    """

    occurrences: np.ndarray
    pauses: np.ndarray

    def trie(self, tokens: TokenBytes) -> TokenTrie:
        """Return the vocabulary as a trie with these counts.

        Args:
            tokens: The target's tokens.

        Raises:
            MTPCError: See `token_trie`.
        """
        return token_trie(tokens, self.occurrences, vocab_size=len(self.occurrences), pauses=self.pauses)


def count_tokens(ids: Sequence[int], tokens: TokenBytes, vocab_size: int) -> TokenEnds:
    """Count the tokens of texts.

    Args:
        ids: Tokens of texts, one after the other.
        tokens: The target's tokens.
        vocab_size: V of the target's logits.

    Returns:
        The counts.

    Raises:
        MTPCError: See `token_trie`.
    """
    occurrences = np.bincount(np.asarray(ids, dtype=np.int64), minlength=vocab_size)
    return TokenEnds(occurrences, count_pauses(token_trie(tokens, vocab_size=vocab_size), ids))


def write_counts(folder: Path, counts: TokenEnds) -> None:
    """Write the counts into the folder of a checkpoint.

    Args:
        folder: The checkpoint.
        counts: The counts.
    """
    save_file({name: torch.from_numpy(each) for name, each in counts._asdict().items()}, folder / COUNTS)


def read_counts(folder: Path, vocab_size: int) -> TokenEnds:
    """Read the counts of a checkpoint.

    Args:
        folder: The checkpoint.
        vocab_size: V of the target.

    Returns:
        The counts.

    Raises:
        MTPCError: The file is missing or damaged, does not fit the target, or holds a negative number.
    """
    expected = {name: torch.empty(vocab_size, dtype=torch.int64, device="meta") for name in TokenEnds._fields}
    counts = TokenEnds(**{name: each.numpy() for name, each in read_weights(folder, expected, COUNTS).items()})
    for name, each in counts._asdict().items():
        if each.min() < 0:
            raise MTPCError(f"{folder / COUNTS}: the tensor {name!r} holds {each.min()}, but counts are not negative.")
    return counts
