"""A draft's logits where every request of a batch drafts from a vocabulary of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from mtpc.draw import draw_mixed, draw_tokens, most_probable
from mtpc.target_head.rows import ALONE, Ranks, Rows
from mtpc.target_head.shared import Head, places
from mtpc.to_device import copy_to_device
from mtpc.vocabulary.vocabularies import DraftVocabularies


class DraftLogits:
    """The output head's rows of every draft vocabulary, and logits over the whole vocabulary made of them.

    A token that cannot be drafted has the logit -inf, hence the probability 0 in the distribution that the drafts are
    drawn from and that the verifier sees: lossless at any temperature.

    shard: of the target's output head, this rank's, [V / count, d]; only rows of it are kept, unless requests may draft
    from all tokens.  whole: makes logits of all tokens, states [n, d] -> [n, V]; None: from the shards.
    """

    def __init__(
        self,
        vocabularies: DraftVocabularies,
        shard: Tensor,
        whole: Callable[[Tensor], Tensor] | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        self.vocab_size = vocabularies.vocab_size
        self.names = vocabularies.names
        self.ids = tuple(ids.to(shard.device) for ids in vocabularies.ids)  # int64 [R] of each vocabulary
        by_language = self.ids[:-1] if vocabularies.detector is not None else self.ids
        self.rows = tuple(Rows.of(shard, ids, ranks) for ids in by_language)
        self.places = tuple(places(ids, self.vocab_size) for ids in self.ids)
        self.whole = None if vocabularies.detector is None else whole or Rows(shard, self.vocab_size, ranks)

    @property
    def summary(self) -> str:
        """One line for a log: the draft vocabularies, their sizes and the memory of their rows."""
        named = ", ".join(f"{name} ({len(ids)} tokens)" for name, ids in zip(self.names, self.ids, strict=True))
        memory = sum(rows.nbytes for rows in self.rows)
        memory += self.whole.rounded_nbytes if isinstance(self.whole, Rows) else 0
        return f"drafting from {named} of {self.vocab_size} tokens; the head's rows of them take {memory / 1e6:.1f} MB"

    def __call__(self, states: Tensor, numbers: Tensor | None = None) -> Tensor:
        """Logits [n, V] of states [n, d], in their type.

        numbers: int64 [n], the number of each row's draft vocabulary; None: the first for all.  It is best on the CPU,
        where it groups the rows without asking the device: only those in use are computed, for their rows.
        """
        whole = states.new_full((len(states), self.vocab_size), -torch.inf)
        only = self._only(numbers)
        if only is not None:
            return whole.index_copy_(1, self.ids[only], self._of(only, states))
        assert numbers is not None
        for number, rows in groups(numbers, states.device):
            whole[rows[:, None], self.ids[number]] = self._of(number, states[rows])
        return whole

    def head(self, numbers: Tensor | None = None) -> Head:
        """What the parallel parts of these rows draft through: the rows' own draft vocabulary, if they share one.

        numbers: int64 [B], as above.
        """
        only = self._only(numbers)
        if only is not None:
            return DraftHead(partial(self._of, only), self.vocab_size, self.ids[only])
        return DraftHead(self, self.vocab_size, numbers=numbers)

    def greedy(self, states: Tensor, numbers: Tensor | None = None) -> Tensor:
        """The token of the largest logit in each row, int64 [n], without logits of the whole vocabulary.

        States and numbers as above.
        """
        only = self._only(numbers)
        if only is not None:
            return self.ids[only][self._of(only, states).argmax(-1)]
        assert numbers is not None
        tokens = torch.empty(len(states), dtype=torch.int64, device=states.device)
        for number, rows in groups(numbers, states.device):
            tokens[rows] = self.ids[number][self._of(number, states[rows]).argmax(-1)]
        return tokens

    def drawn(
        self, states: Tensor, temperature: Tensor, uniforms: Tensor, numbers: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """`draw_tokens` from the logits of each row's vocabulary: tokens int64 [n], and probabilities float32 [n, V].

        temperature: [n].  uniforms: float64 [n].  States and numbers as above.
        """
        whole = torch.zeros(len(states), self.vocab_size, device=states.device)
        only = self._only(numbers)
        if only is not None:
            choice, probs = draw_tokens(self._of(only, states), temperature, uniforms)
            return self.ids[only][choice], whole.index_copy_(1, self.ids[only], probs)
        assert numbers is not None
        tokens = torch.empty(len(states), dtype=torch.int64, device=states.device)
        for number, rows in groups(numbers, states.device):
            choice, probs = draw_tokens(self._of(number, states[rows]), temperature[rows], uniforms[rows])
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
        """As `drawn`, where one token of each row has a weight of its own; and its probability without that, [n].

        copied: int64 [n], these tokens, also some that no vocabulary holds.  weights: float32 [n], see `draw_mixed`.
        """
        tokens, likely = torch.empty_like(copied), torch.empty_like(weights)
        whole = torch.zeros(len(states), self.vocab_size, device=states.device)

        def draw(number: int, rows: Tensor | slice) -> Tensor:
            ids, other = self.ids[number], copied[rows]
            places = self.places[number][other]
            mixed = draw_mixed(self._of(number, states[rows]), temperature[rows], uniforms[rows], places, weights[rows])
            choice, likely[rows] = mixed.columns, mixed.drafter_probs
            tokens[rows] = torch.where(choice < len(ids), ids[choice.clamp_max(len(ids) - 1)], other)
            outside[rows] = mixed.probs[:, -1:]
            return mixed.probs[:, :-1]

        outside, only = weights.new_zeros(len(states), 1), self._only(numbers)
        if only is not None:
            whole.index_copy_(1, self.ids[only], draw(only, slice(None)))
        else:
            assert numbers is not None
            for number, rows in groups(numbers, states.device):
                whole[rows[:, None], self.ids[number]] = draw(number, rows)
        return tokens, whole.scatter_add_(1, copied[:, None], outside), likely

    def most_probable(
        self, states: Tensor, copied: Tensor | None, numbers: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The most probable token of each row, int64 [n], its probability, and that of another token, float32 [n].

        copied: int64 [n], the other one; None: there is none.  States and numbers as above.
        """
        only = self._only(numbers)
        if only is not None:
            columns = None if copied is None else self.places[only][copied]
            choice, likely, other = most_probable(self._of(only, states), columns)
            return self.ids[only][choice], likely, other
        assert numbers is not None
        tokens = torch.empty(len(states), dtype=torch.int64, device=states.device)
        likely, other = torch.empty(2, len(states), device=states.device)
        for number, rows in groups(numbers, states.device):
            columns = None if copied is None else self.places[number][copied[rows]]
            choice, likely[rows], other[rows] = most_probable(self._of(number, states[rows]), columns)
            tokens[rows] = self.ids[number][choice]
        return tokens, likely, other

    def _only(self, numbers: Tensor | None) -> int | None:
        """The number of the vocabulary of all rows; None where they may differ."""
        if numbers is None or len(self.ids) == 1:
            return 0
        return int(numbers) if len(numbers) == 1 else None

    def _of(self, number: int, states: Tensor) -> Tensor:
        """Logits of one vocabulary: [m, d] -> [m, R]."""
        if number == len(self.rows):
            assert self.whole is not None
            return self.whole(states).to(states.dtype)
        return self.rows[number](states)


class DraftHead(Head):
    """A head that is a function.

    logits_of: states [n, d] -> [n, R]; it is told the numbers of their draft vocabularies, int64 [n], where these are
    given of B rows, of as many states each.  ids: as of any `Head`.
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
        flat, numbers = states.flatten(0, -2), self.numbers
        numbered = () if numbers is None else (numbers.repeat_interleave(len(flat) // len(numbers)),)
        return self.logits_of(flat, *numbered).unflatten(0, states.shape[:-1]).float()

    def of_rows(self, rows: slice) -> DraftHead:
        if self.numbers is None:
            return self
        return DraftHead(self.logits_of, self.vocab_size, self.ids, self.numbers[rows])


def groups(numbers: Tensor, device: torch.device) -> Iterator[tuple[int, Tensor]]:
    """Each vocabulary in use, with its rows: int64 on the device, which nothing waits for."""
    for number in numbers.unique().tolist():
        rows = (numbers == number).nonzero()[:, 0]
        yield number, copy_to_device(rows, device)
