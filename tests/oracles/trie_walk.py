"""A token of a trie drawn branch by branch, with the drafter's probabilities after every text that can go on."""

from __future__ import annotations

import math

from mtpc.vocabulary.token_trie import NextByteProbs, TokenTrie, choose_branch


def walk(trie: TokenTrie, next_byte_probs: NextByteProbs, uniform: float | None) -> tuple[int, float]:
    """One token and log q of it; without a uniform in [0, 1), along the most probable branches."""
    node, text, log_q = 0, b"", 0.0
    while True:
        probs = next_byte_probs(text) if trie.forks(node) else None
        branch = choose_branch(trie.branches(node, probs), uniform)
        log_q, uniform = log_q + math.log(branch.probability), branch.uniform
        if not branch.place:
            return int(trie.token[node]), log_q
        node = int(trie.children[node]) + branch.place - 1
        text += bytes([trie.byte[node]])
