"""A circuit as the parallel part of a drafter: what is known in, a draft with its distributions out."""

from __future__ import annotations

from typing import Self

from torch import Tensor

from mtpc.circuits import build_circuit
from mtpc.draft import DraftContext
from mtpc.parallel.circuit_head import CircuitHead
from mtpc.parallel.config import CircuitConfig
from mtpc.parallel.joint import JointPart


class CircuitPart(JointPart):
    """A circuit and the head that parameterises it; it reads the last state that is known and the token it predicted.

    The window predicts x_{t+1}..x_{t+n} from h_t.  When an engine drafts, the target has already sampled
    x_{t+1}: it is evidence.  The circuit is conditioned on it exactly and x_{t+2}..x_{t+n} are drafted, so
    no bonus token is lost and no second forward pass is needed (beyond algorithm 2 of the MTPC paper).
    With ``token_input`` the head reads x_{t+1} itself, and its circuit is the law of x_{t+2}..x_{t+n} given it.
    Behind an autoregressive part the same holds of its last state and the draft that this predicted.
    """

    def __init__(self, config: CircuitConfig) -> None:
        super().__init__()
        self.config, self.vocab_size = config, config.vocab_size
        self.circuit = build_circuit(config.circuit, config.circuit_window, config.rank)
        self.head = CircuitHead(config, self.circuit)

    @property
    def num_evidence(self) -> int:
        """Tokens of the circuit's window that are evidence: 1, the target's own, or 0 where the head reads it."""
        return self.config.circuit_window - self.max_drafts

    @property
    def max_drafts(self) -> int:
        """Tokens one draft can hold: the window without the target's own token."""
        return self.config.window - 1

    @property
    def leaf_shape(self) -> tuple[int, int, int]:
        """Of the distributions over tokens that one draft of one row mixes: [n, R, V]."""
        return self.config.circuit_window, self.config.rank, self.vocab_size

    def shortened(self, num_drafts: int) -> Self:
        """A window with the same distribution of its first ``num_drafts`` tokens that computes no more than these.

        The positions after them are summed out of the circuit, exactly: a chain (FF, CP, HMM) keeps its leading
        parameters. A BTree, whose tree depends on the window, stays as it is.
        """
        window = num_drafts + 1
        if window == self.config.window or not self.circuit.is_chain:
            return self
        like = next(self.parameters())
        short = type(self)(self.config.model_copy(update={"window": window})).to(like.device, like.dtype)
        short.head.load_state_dict(self.head.leading(self.circuit, short.circuit.window))
        return short.requires_grad_(like.requires_grad).train(self.training)

    def states(self, context: DraftContext) -> tuple[Tensor, tuple[Tensor, ...]]:
        return self.head.states(context.states[:, -1], context.tokens[:, -1])

    def leaves(self, context: DraftContext, states: Tensor, positions: slice) -> Tensor:
        return self.head.leaves.logits(states, positions).float()
