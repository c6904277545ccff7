"""Losses of circuits and Markov heads over a subword vocabulary, along the conversations of their target."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from mtpc.circuits.params import token_evidence
from mtpc.draft import DraftContext
from mtpc.lab.training.conversation_recipe import MicroBatch
from mtpc.lab.training.load_balance import ComponentUsage
from mtpc.lab.training.mixture_loss import MixtureLeaves, TargetDistributions, mixture_losses
from mtpc.lab.training.text_states import TextStates
from mtpc.methods.drafter import Drafter
from mtpc.parallel.circuit_head import to_circuit_params
from mtpc.parallel.circuit_part import CircuitPart
from mtpc.parallel.head_inputs import with_head_inputs
from mtpc.parallel.leaves import HeadLeaves, TableLeaves
from mtpc.parallel.markov_part import MarkovPart
from mtpc.target_head.shared import SharedHead


class WindowBatch(NamedTuple):
    """The windows of m starts, which all drafters share.

    Attributes:
        context: The target's state, next token and head at each start.
        text: Tokens x_{t+1}.. after each start, int64 [m, K + 1].
        target: The target's distributions of all tokens of all windows; None where the loss needs none.
        places: Which distribution belongs to each token of ``text``, int64 [m, K + 1].
        states: The texts around the starts, for drafters that adapt the target's layers; None: there is none.
    """

    context: DraftContext
    text: Tensor
    target: TargetDistributions | None
    places: Tensor
    states: TextStates | None = None

    @classmethod
    def of(cls, micro_batch: MicroBatch, needs_target: bool) -> WindowBatch:
        """Return the windows of a micro-batch; each distribution of the target is computed once."""
        hidden, tokens, chosen, head, below = micro_batch
        window = tokens.shape[1] - chosen.shape[1]  # K + 1
        rows, starts = chosen.nonzero(as_tuple=True)
        positions = starts[:, None] + torch.arange(window, device=starts.device)  # [m, K + 1]
        text = tokens[rows[:, None], positions + 1]
        used = torch.zeros_like(tokens, dtype=torch.bool)
        used[rows[:, None], positions] = True
        places = (used.flatten().cumsum(0) - 1).view_as(used)[rows[:, None], positions]
        context = with_head_inputs(DraftContext.of_target(hidden[rows, starts], text[:, 0]), None, head)
        target = TargetDistributions.of(head.logits(hidden[used])) if needs_target else None
        return cls(context, text, target, places, TextStates(below, rows, starts) if below else None)

    def read_by(self, drafter: Drafter) -> WindowBatch:
        """Return the windows with the states that a drafter's parallel part reads, see `TextStates.read_by`."""
        if self.states is None:
            return self
        states = self.states.read_by(drafter, self.context.states[:, -1])
        return self._replace(context=self.context._replace(states=states[:, None]))


def circuit_losses(
    part: CircuitPart | MarkovPart, windows: WindowBatch, weights: Tensor
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Sum the loss of each position of a drafter's circuit over the starts, see `mixture_losses`.

    Args:
        part: Part in training, whose window may be shorter than that of the batch.
        windows: Windows of the starts.
        weights: Weight of each loss, [n].

    Returns:
        Losses in nats, float32 [n], and the circuit's unnormalized sum weights.
    """
    head, embedding = windows.context.head, windows.context.inputs
    assert isinstance(head, SharedHead) and embedding is not None
    features, sums = part.head.features(
        windows.context.states[:, -1].float(), windows.text[:, 0], embedding[:, -1].float()
    )
    window = slice(part.config.window - part.config.circuit_window, part.config.window)
    leaves = _leaves(part, head, features, windows.text[:, : part.config.window - 1])
    target = None if windows.target is None else (windows.target, windows.places[:, window])
    text = head.rows_of(windows.text[:, window])
    return mixture_losses(part.circuit, leaves, sums, text, weights, target), sums


def _leaves(part: CircuitPart | MarkovPart, head: SharedHead, features: Tensor, previous: Tensor) -> MixtureLeaves:
    """Return what the leaf logits over the head's rows are computed from; a Markov head reads the previous tokens."""
    leaves = part.head.leaves
    assert not isinstance(leaves, TableLeaves)  # see `ConversationCircuitRecipe`
    factors = leaves.factors(features)
    log_weights: Tensor | None = getattr(head, "log_weights", None)
    matrix = head.rows if isinstance(leaves, HeadLeaves) else _of_head(leaves.unembedding, head)
    states, matrices, components = [factors.positions], [matrix], None
    if isinstance(part, MarkovPart):
        states.append(part.before(previous))
        matrices.append(_of_head(part.after, head))
    if factors.components is not None:
        components = factors.components.to(matrix.dtype).permute(0, 3, 1, 2) @ matrix.T  # [n, k + 1, R, rows]
    return MixtureLeaves(states, matrices, factors.features, components, log_weights)


def _of_head(rows: Tensor, head: SharedHead) -> Tensor:
    """Return the rows of all tokens, [V, f], for the tokens of a head."""
    return rows if head.ids is None else rows[head.ids]


@torch.no_grad()
def component_usage(part: CircuitPart, windows: WindowBatch, rows: int = 16) -> ComponentUsage:
    """Return how the components of each position are used along the text.

    Args:
        part: Circuit with more than one component.
        windows: Windows of the starts.
        rows: Starts whose leaf distributions are in memory at once.
    """
    first = part.config.window - part.config.circuit_window
    usage = ComponentUsage(torch.zeros(part.config.circuit_window, part.config.rank, device=windows.text.device), 0)
    head = windows.context.head
    assert isinstance(head, SharedHead)
    for start in range(0, len(windows.text), rows):
        some = slice(start, start + rows)
        params = to_circuit_params(*part.logits(windows.context.of_rows(some)))
        evidence = token_evidence(params.leaves, head.rows_of(windows.text[some, first : part.config.window]))
        usage = usage.plus(ComponentUsage.of(part.circuit, params.sums, evidence))
    return usage


def part_of(drafter: Drafter) -> CircuitPart | MarkovPart:
    """Return the circuit or Markov head of an MTPC drafter."""
    assert isinstance(drafter.parallel, CircuitPart | MarkovPart)
    return drafter.parallel
