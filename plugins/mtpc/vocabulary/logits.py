"""A draft's logits where every request of a batch drafts from a vocabulary of its own."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from mtpc.circuits.params import draw
from mtpc.int8 import Int8Linear, fits
from mtpc.vocabulary.heads import DraftVocabularies


class DraftLogits:
    """The output head's rows of every draft vocabulary, and logits over the whole vocabulary made of them.

    A token that cannot be drafted has the logit -inf, hence the probability 0 in the distribution that the drafts are
    drawn from and that the verifier sees: lossless at any temperature.  On a CPU that computes in bfloat16, a row that
    is alone with its map reads the head's rows rounded to int8: half as many bytes, and drafts from just these logits.

    unembedding: the target's output head, [V, d]; it is not kept, only rows of it are.  static: whether shapes must be
    the same for all batches of a size, and the maps unknown to the host, as in a CUDA graph.
    """

    def __init__(self, vocabularies: DraftVocabularies, unembedding: Tensor, static: bool = False) -> None:
        self.vocab_size, self.static = len(unembedding), static
        self.names = vocabularies.names
        self.ids = tuple(ids.to(unembedding.device) for ids in vocabularies.ids)  # int64 [R] of each map
        self.rows = vocabularies.gather(unembedding)  # [R, d] of each map
        self.rounded: tuple[Int8Linear, ...] = ()  # the same for one row of states
        if unembedding.device.type == "cpu" and unembedding.dtype == torch.bfloat16 and all(map(fits, self.rows)):
            self.rounded = tuple(Int8Linear(rows) for rows in self.rows)

    @property
    def summary(self) -> str:
        """One line for a log: the maps, their sizes and the memory of their rows."""
        maps = ", ".join(f"{name} ({len(ids)} tokens)" for name, ids in zip(self.names, self.ids, strict=True))
        held = [*self.rows, *(tensor for linear in self.rounded for tensor in linear.buffers())]
        memory = sum(tensor.nbytes for tensor in held)
        return f"drafting from {maps} of {self.vocab_size} tokens; the head's rows of them take {memory / 1e6:.1f} MB"

    def __call__(self, states: Tensor, maps: Tensor | None = None) -> Tensor:
        """Logits [n, V] of states [n, d], in their type.

        maps: int64 [n], the number of each row's map; None: the first for all.  Where shapes are static, it is on the
        device of the states; every map is computed for every row, and each row keeps its own.  Otherwise it is best on
        the CPU, where it groups the rows without asking the device: only the maps in use are computed, for their rows.
        """
        whole = states.new_full((len(states), self.vocab_size), -torch.inf)
        only = self._only(maps)
        if only is not None:
            return whole.index_copy_(1, self.ids[only], self._of(only, states))
        assert maps is not None
        if self.static:
            for number, ids in enumerate(self.ids):
                own = (maps == number)[:, None]
                whole.index_copy_(1, ids, torch.where(own, self._of(number, states), whole[:, ids]))
            return whole
        for number, rows in groups(maps, states.device):
            whole[rows[:, None], self.ids[number]] = self._of(number, states[rows])
        return whole

    def greedy(self, states: Tensor, maps: Tensor | None = None) -> Tensor:
        """The token of the largest logit in each row, int64 [n]; states and maps as above.

        Where shapes are not static, or there is one map, it makes no logits of the whole vocabulary.
        """
        only = self._only(maps)
        if only is not None:
            return self.ids[only][self._of(only, states).argmax(-1)]
        assert maps is not None
        if self.static:
            return self(states, maps).argmax(-1)
        tokens = torch.empty(len(states), dtype=torch.int64, device=states.device)
        for number, rows in groups(maps, states.device):
            tokens[rows] = self.ids[number][self._of(number, states[rows]).argmax(-1)]
        return tokens

    def drawn(
        self, states: Tensor, temperature: Tensor, uniforms: Tensor, maps: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """`draw_tokens` from the logits of each row's map: tokens int64 [n], and probabilities float32 [n, V].

        temperature: [n].  uniforms: float64 [n].  States and maps as above, where shapes are not static.
        """
        assert not self.static
        whole = torch.zeros(len(states), self.vocab_size, device=states.device)
        only = self._only(maps)
        if only is not None:
            choice, probs = draw_tokens(self._of(only, states), temperature, uniforms)
            return self.ids[only][choice], whole.index_copy_(1, self.ids[only], probs)
        assert maps is not None
        tokens = torch.empty(len(states), dtype=torch.int64, device=states.device)
        for number, rows in groups(maps, states.device):
            choice, probs = draw_tokens(self._of(number, states[rows]), temperature[rows], uniforms[rows])
            tokens[rows] = self.ids[number][choice]
            whole[rows[:, None], self.ids[number]] = probs
        return tokens, whole

    def _only(self, maps: Tensor | None) -> int | None:
        """The number of the map of all rows; None where they may differ."""
        if maps is None or len(self.ids) == 1:
            return 0
        return int(maps) if len(maps) == 1 and not self.static else None

    def _of(self, number: int, states: Tensor) -> Tensor:
        """Logits of one map: [m, d] -> [m, R]."""
        if self.rounded and len(states) == 1 and states.dtype == torch.bfloat16:
            logits: Tensor = self.rounded[number](states.contiguous())
            return logits
        return F.linear(states, self.rows[number].to(states.dtype))


def draw_tokens(logits: Tensor, temperature: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Draws from softmax(logits / temperature), int64 [n], and these probabilities, float32 [n, R].

    logits: [n, R].  temperature: [n]; where it is 0, the token of the largest logit is taken, and the probabilities,
    which no verification of such a row reads, are those of temperature 1.  uniforms: float64 [n], in [0, 1): with
    fewer bits, and sums in float32, the rare tokens of a large vocabulary would not be drawn as often as is said.
    """
    greedy = temperature == 0
    probs = (logits / torch.where(greedy, 1.0, temperature)[:, None]).softmax(-1, dtype=torch.float32)
    return torch.where(greedy, logits.argmax(-1), draw(probs.double(), uniforms)), probs


def groups(maps: Tensor, device: torch.device) -> Iterator[tuple[int, Tensor]]:
    """Each map in use, with its rows: int64 on the device."""
    for number in maps.unique().tolist():
        yield number, (maps == number).nonzero()[:, 0].to(device)
