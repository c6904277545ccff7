"""A drafter of any method, both parts written out: no cache, no batch, nothing that the core computes faster.

Everything is computed anew for each draft, from the whole text; a window is the table of all windows, so vocabularies
must be tiny.  Sessions, and through them the engines, are held against this.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from mtpc.autoregressive.adapted_layers import AdaptedLayers
from mtpc.methods.drafter import Drafter
from mtpc.parallel.byte_part import ByteCircuitPart
from mtpc.parallel.circuit_part import CircuitPart
from mtpc.parallel.independent import IndependentPart
from mtpc.parallel.medusa_part import MedusaPart
from mtpc.target_head.shared import SharedHead
from tests.oracles.adapted_layers import AdaptedLayersOracle, merged_weights
from tests.oracles.byte_part import BytePartOracle
from tests.oracles.circuit_part import CircuitPartOracle
from tests.oracles.draft_layers import DraftLayersOracle
from tests.oracles.independent_part import ParallelOracle
from tests.oracles.medusa_part import MedusaPartOracle

Choose = Callable[[int, Tensor], int]  # (draft counted from 0, its distribution [V]) -> token


class DraftingOracle:
    """head: the target's, whole."""

    def __init__(self, drafter: Drafter, head: SharedHead) -> None:
        weights, config = drafter.state_dict(), drafter.config
        self.draft_steps = config.draft_steps
        self.autoregressive: DraftLayersOracle | None = None
        self.parallel = self.spelled = None
        self.window: CircuitPartOracle | MedusaPartOracle | None = None
        if config.autoregressive is not None:
            own = part(weights, "autoregressive.")
            if isinstance(drafter.autoregressive, AdaptedLayers):
                merged = merged_weights(drafter.autoregressive, own)
                self.autoregressive = AdaptedLayersOracle(config.autoregressive, merged, head.embedding, head.rows)
            else:
                self.autoregressive = DraftLayersOracle(config.autoregressive, own, head.embedding, head.rows)
        if isinstance(drafter.parallel, IndependentPart):
            assert self.autoregressive is not None
            self.parallel = ParallelOracle(drafter.parallel.config, part(weights, "parallel."), self.autoregressive)
        elif isinstance(drafter.parallel, ByteCircuitPart):
            tokens = drafter.parallel.byte_vocabulary.tokens()
            self.spelled = BytePartOracle(drafter.parallel.config, part(weights, "parallel.head."), tokens)
        elif isinstance(drafter.parallel, MedusaPart):
            self.window = MedusaPartOracle(drafter.parallel.config, part(weights, "parallel."))
        elif drafter.parallel is not None:
            assert isinstance(drafter.parallel, CircuitPart)  # the only other kind of window
            tensors = part(weights, "parallel.head.")
            self.window = CircuitPartOracle(drafter.parallel.config, tensors, head)

    def draft(
        self, hidden: Tensor, text: list[int], num_drafts: int, choose: Choose, temperature: float = 1.0
    ) -> tuple[list[int], Tensor]:
        """K drafts after a text, and the distributions [K, V], float64, that each was chosen from.

        hidden: [T - 1, d], the target's states of all tokens of the text but the last, which it has just emitted.
        """
        states, tokens, laws = hidden[-1:].double(), [], []
        if isinstance(self.autoregressive, AdaptedLayersOracle):
            states = self.autoregressive.states(hidden)[-1:]
        steps = num_drafts if self.draft_steps is None else min(self.draft_steps, num_drafts)
        if steps:
            assert self.autoregressive is not None

            def of_step(step: int, logits: Tensor) -> int:
                laws.append((logits / temperature).softmax(-1))
                return choose(step, laws[-1])

            tokens, drafted = self.autoregressive.steps(hidden, text, steps, of_step)
            states = torch.cat([states, drafted])
        if self.spelled is not None:
            for step in range(num_drafts):
                laws.append(torch.from_numpy(self.spelled.law(states[-1], [text[-1], *tokens], temperature)))
                tokens = [*tokens, choose(step, laws[-1])]
        elif num_drafts > steps:
            known = [text[-1], *tokens]
            if self.parallel is not None:
                table = self.parallel.table(states, known, temperature)
            else:
                assert self.window is not None
                table = self.window.table(states[-1], known[-1], temperature)
            prefix: tuple[int, ...] = ()
            for step in range(steps, num_drafts):
                laws.append(torch.from_numpy(table.conditional(prefix)))
                prefix = (*prefix, choose(step, laws[-1]))
            tokens = [*tokens, *prefix]
        return tokens, torch.stack(laws)


def part(weights: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The weights whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}


def along(tokens: list[int]) -> Choose:
    """Chooses these tokens."""
    return lambda step, _: tokens[step]


def most_probable(_: int, law: Tensor) -> int:
    """The most probable token."""
    return int(law.argmax())
