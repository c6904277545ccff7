"""Draft logits where every request of a batch may have a different draft vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from mtpc.draw import draw_mixed, draw_tokens, most_probable
from mtpc.target_head.rows import SINGLE_RANK, HeadRows, Ranks
from mtpc.target_head.shard import QuantizedShard, whole_head
from mtpc.target_head.shared import Head, index_by_token
from mtpc.to_device import copy_to_device
from mtpc.vocabulary.vocabularies import DraftVocabularies


class DraftLogits:
    """Output head rows of all draft vocabularies, and logits over the whole vocabulary computed from them.

    A token outside a request's draft vocabulary has the logit -inf, hence probability 0.
    Tokens are drawn from that distribution and the verifier receives it, so drafting is lossless at any temperature.

    Every method takes hidden states [n, d] and the vocabulary number of each row, int64 [n]; None: vocabulary 0.
    Numbers are best kept on the CPU: there rows are grouped without waiting for the device.
    Only vocabularies in use are computed, and only for their rows.

    Attributes:
        vocab_size: V of the target.
        names: Names of the draft vocabularies, by number.
        ids: Tokens of each vocabulary, ascending, int64 [R].
        rows: Output head rows of each vocabulary but the one of all tokens.
        index_by_token: Index in ``ids`` of every token, int64 [V], -1 where it is missing; one for each vocabulary.
        whole: Computes logits of all tokens, [n, d] -> [n, V]; None where no request can draft from all tokens.
    """

    def __init__(
        self,
        vocabularies: DraftVocabularies,
        shard: Tensor | QuantizedShard,
        whole: Callable[[Tensor], Tensor] | None = None,
        ranks: Ranks = SINGLE_RANK,
    ) -> None:
        """Gather the rows of all draft vocabularies.

        Args:
            vocabularies: Draft vocabularies of the server.
            shard: This rank's shard of the target's output head, [V / count, d].  Only the gathered rows are kept,
                unless requests may draft from all tokens.  Those of a quantized head are dequantized.
            whole: Computes logits of all tokens, [n, d] -> [n, V]; None: they are computed from the shards.
            ranks: Tensor-parallel ranks that hold the head.

        Raises:
            MTPCError: The rows of a quantized head cannot be read, see `QuantizedShard.dequantized`.
        """
        self.vocab_size = vocabularies.vocab_size
        self.names = vocabularies.names
        self.ids = tuple(ids.to(shard.device) for ids in vocabularies.ids)  # int64 [R] of each vocabulary
        by_language = self.ids[:-1] if vocabularies.detector is not None else self.ids
        held = shard if isinstance(shard, Tensor) else shard.dequantized(torch.cat(by_language), ranks)
        self.rows = tuple(HeadRows.of(held, ids, ranks) for ids in by_language)
        self.index_by_token = tuple(index_by_token(ids, self.vocab_size) for ids in self.ids)
        self.whole = None if vocabularies.detector is None else whole or whole_head(shard, self.vocab_size, ranks)

    @property
    def summary(self) -> str:
        """One log line: the draft vocabularies, their sizes and the memory of their rows."""
        named = ", ".join(f"{name} ({len(ids)} tokens)" for name, ids in zip(self.names, self.ids, strict=True))
        memory = sum(rows.nbytes for rows in self.rows)
        memory += self.whole.rounded_nbytes if isinstance(self.whole, HeadRows) else 0
        return f"drafting from {named} of {self.vocab_size} tokens; their output head rows take {memory / 1e6:.1f} MB"

    def __call__(self, states: Tensor, numbers: Tensor | None = None) -> Tensor:
        """Return logits over the whole vocabulary, [n, V], in the dtype of the states.

        Args:
            states: Hidden states, [n, d].
            numbers: Draft vocabulary of each row, int64 [n]; None: vocabulary 0.
        """
        whole = states.new_full((len(states), self.vocab_size), -torch.inf)
        shared = self._shared_vocabulary(numbers)
        if shared is not None:
            return whole.index_copy_(1, self.ids[shared], self._vocabulary_logits(shared, states))
        assert numbers is not None
        for number, rows in rows_by_vocabulary(numbers, states.device):
            whole[rows[:, None], self.ids[number]] = self._vocabulary_logits(number, states[rows])
        return whole

    def head(self, numbers: Tensor | None = None) -> Head:
        """Return the head that the parallel part drafts through: one draft vocabulary, if all requests share it.

        Args:
            numbers: Draft vocabulary of each request, int64 [B]; None: vocabulary 0.
        """
        shared = self._shared_vocabulary(numbers)
        if shared is not None:
            return DraftHead(partial(self._vocabulary_logits, shared), self.vocab_size, self.ids[shared])
        return DraftHead(self, self.vocab_size, numbers=numbers)

    def greedy(self, states: Tensor, numbers: Tensor | None = None) -> Tensor:
        """Return the token of the largest logit in each row, int64 [n], without logits of the whole vocabulary.

        Args:
            states: Hidden states, [n, d].
            numbers: Draft vocabulary of each row, int64 [n]; None: vocabulary 0.
        """
        shared = self._shared_vocabulary(numbers)
        if shared is not None:
            return self.ids[shared][self._vocabulary_logits(shared, states).argmax(-1)]
        assert numbers is not None
        tokens = torch.empty(len(states), dtype=torch.int64, device=states.device)
        for number, rows in rows_by_vocabulary(numbers, states.device):
            tokens[rows] = self.ids[number][self._vocabulary_logits(number, states[rows]).argmax(-1)]
        return tokens

    def drawn(
        self, states: Tensor, temperature: Tensor, uniforms: Tensor, numbers: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Draw one token in each row with `draw_tokens`.

        Args:
            states: Hidden states, [n, d].
            temperature: Sampling temperature of each row, [n]; 0 is greedy.
            uniforms: Uniform random numbers in [0, 1), float64 [n].
            numbers: Draft vocabulary of each row, int64 [n]; None: vocabulary 0.

        Returns:
            Tokens, int64 [n], and the probabilities that they were drawn from, float32 [n, V].
        """
        whole = torch.zeros(len(states), self.vocab_size, device=states.device)
        shared = self._shared_vocabulary(numbers)
        if shared is not None:
            choice, probs = draw_tokens(self._vocabulary_logits(shared, states), temperature, uniforms)
            return self.ids[shared][choice], whole.index_copy_(1, self.ids[shared], probs)
        assert numbers is not None
        tokens = torch.empty(len(states), dtype=torch.int64, device=states.device)
        for number, rows in rows_by_vocabulary(numbers, states.device):
            choice, probs = draw_tokens(
                self._vocabulary_logits(number, states[rows]), temperature[rows], uniforms[rows]
            )
            tokens[rows] = self.ids[number][choice]
            whole[rows[:, None], self.ids[number]] = probs
        return tokens, whole

    def drawn_mixed(
        self,
        states: Tensor,
        temperature: Tensor,
        uniforms: Tensor,
        copied: Tensor,
        weights: Tensor,
        numbers: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Draw one token in each row from the drafter's distribution mixed with prompt lookup.

        Args:
            states: Hidden states, [n, d].
            temperature: Sampling temperature of each row, [n]; 0 is greedy.
            uniforms: Uniform random numbers in [0, 1), float64 [n].
            copied: Token that prompt lookup proposes in each row, int64 [n]; it may be outside every vocabulary.
            weights: Mixture weight of that token, float32 [n]; see `draw_mixed`.
            numbers: Draft vocabulary of each row, int64 [n]; None: vocabulary 0.

        Returns:
            Tokens, int64 [n]; the probabilities that they were drawn from, float32 [n, V]; and the drafter's
            probability of the proposed token, float32 [n].
        """
        tokens, drafter_probs = torch.empty_like(copied), torch.empty_like(weights)
        whole = torch.zeros(len(states), self.vocab_size, device=states.device)

        def draw(number: int, rows: Tensor | slice) -> Tensor:
            ids, other = self.ids[number], copied[rows]
            columns = self.index_by_token[number][other]
            mixed = draw_mixed(
                self._vocabulary_logits(number, states[rows]), temperature[rows], uniforms[rows], columns, weights[rows]
            )
            choice, drafter_probs[rows] = mixed.columns, mixed.drafter_probs
            tokens[rows] = torch.where(choice < len(ids), ids[choice.clamp_max(len(ids) - 1)], other)
            outside[rows] = mixed.probs[:, -1:]
            return mixed.probs[:, :-1]

        outside, shared = weights.new_zeros(len(states), 1), self._shared_vocabulary(numbers)
        if shared is not None:
            whole.index_copy_(1, self.ids[shared], draw(shared, slice(None)))
        else:
            assert numbers is not None
            for number, rows in rows_by_vocabulary(numbers, states.device):
                whole[rows[:, None], self.ids[number]] = draw(number, rows)
        return tokens, whole.scatter_add_(1, copied[:, None], outside), drafter_probs

    def most_probable(
        self, states: Tensor, copied: Tensor, numbers: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the most probable token of each row with its probability, and the probability of one other token.

        Args:
            states: Hidden states, [n, d].
            copied: The other token of each row, int64 [n].
            numbers: Draft vocabulary of each row, int64 [n]; None: vocabulary 0.

        Returns:
            Tokens, int64 [n]; their probabilities, float32 [n]; and the probabilities of the other tokens, float32 [n].
            All are of temperature 1.
        """
        shared = self._shared_vocabulary(numbers)
        if shared is not None:
            columns = self.index_by_token[shared][copied]
            choice, drafter_probs, other = most_probable(self._vocabulary_logits(shared, states), columns)
            return self.ids[shared][choice], drafter_probs, other
        assert numbers is not None
        tokens = torch.empty(len(states), dtype=torch.int64, device=states.device)
        drafter_probs, other = torch.empty(2, len(states), device=states.device)
        for number, rows in rows_by_vocabulary(numbers, states.device):
            columns = self.index_by_token[number][copied[rows]]
            choice, drafter_probs[rows], other[rows] = most_probable(
                self._vocabulary_logits(number, states[rows]), columns
            )
            tokens[rows] = self.ids[number][choice]
        return tokens, drafter_probs, other

    def _shared_vocabulary(self, numbers: Tensor | None) -> int | None:
        """Return the vocabulary number that all rows share; None where rows may differ."""
        if numbers is None or len(self.ids) == 1:
            return 0
        return int(numbers) if len(numbers) == 1 else None

    def _vocabulary_logits(self, number: int, states: Tensor) -> Tensor:
        """Return logits of one vocabulary: [m, d] -> [m, R]."""
        if number == len(self.rows):
            assert self.whole is not None
            return self.whole(states).to(states.dtype)
        return self.rows[number](states)


class DraftHead(Head):
    """A head whose logits are computed by a function.

    Args:
        logits_of: Maps states [n, d] to logits [n, R].  With ``numbers`` it also takes those of the n rows, int64 [n].
        vocab_size: V of the target.
        ids: Tokens of the logits, int64 [R]; None: all tokens in order.
        numbers: Draft vocabularies of B requests, int64 [B], with equally many states each; None: one vocabulary.
    """

    def __init__(
        self,
        logits_of: Callable[..., Tensor],
        vocab_size: int,
        ids: Tensor | None = None,
        numbers: Tensor | None = None,
    ) -> None:
        self.logits_of, self.vocab_size, self.ids, self.numbers = logits_of, vocab_size, ids, numbers

    def logits(self, states: Tensor) -> Tensor:
        """Return logits of states [..., d], float32 [..., R]; see `Head.logits`."""
        flat, numbers = states.flatten(0, -2), self.numbers
        numbered = () if numbers is None else (numbers.repeat_interleave(len(flat) // len(numbers)),)
        return self.logits_of(flat, *numbered).unflatten(0, states.shape[:-1]).float()

    def of_rows(self, rows: slice) -> DraftHead:
        """Return the head for a slice of the batch's requests."""
        if self.numbers is None:
            return self
        return DraftHead(self.logits_of, self.vocab_size, self.ids, self.numbers[rows])


def rows_by_vocabulary(numbers: Tensor, device: torch.device) -> Iterator[tuple[int, Tensor]]:
    """Yield each vocabulary in use and its rows, int64 [m] on the device, without waiting for the device."""
    for number in numbers.unique().tolist():
        rows = (numbers == number).nonzero()[:, 0]
        yield number, copy_to_device(rows, device)
