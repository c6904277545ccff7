"""A circuit as the parallel part of a drafter (draft method MTPC)."""

from __future__ import annotations

from typing import Self

from torch import Tensor

from mtpc.circuits import build_circuit
from mtpc.draft import DraftContext
from mtpc.parallel.circuit_head import CircuitHead
from mtpc.parallel.config import CircuitConfig
from mtpc.parallel.joint import JointPart
from mtpc.parallel.leaves import HeadLeaves


class CircuitPart(JointPart):
    """A circuit and the head that parameterizes it, from the last state and the token after it.

    The circuit is a distribution over x_{t+1}..x_{t+n} given h_t. When an engine drafts, the target has already sampled
    x_{t+1}. The circuit is conditioned on it exactly, and x_{t+2}..x_{t+n} are drafted.
    No bonus token is lost and no second forward pass is needed (unlike algorithm 2 of arXiv 2511.11346).
    With ``token_input`` the head reads x_{t+1}, and its circuit is the distribution of x_{t+2}..x_{t+n} given it.
    Behind an autoregressive part the same holds for its last state and its last draft token.

    Attributes:
        config: Sizes and circuit type.
        circuit: The structure.
        head: The weights.
    """

    def __init__(self, config: CircuitConfig) -> None:
        super().__init__()
        self.config, self.vocab_size = config, config.vocab_size
        self.circuit = build_circuit(config.circuit, config.circuit_window, config.rank)
        self.head = CircuitHead(config, self.circuit)
        self.reads_head = config.leaves == "target"

    @property
    def num_evidence(self) -> int:
        """Tokens of the circuit's window that are evidence: 1 (x_{t+1}), or 0 where the head reads it."""
        return self.config.circuit_window - self.max_drafts

    @property
    def max_drafts(self) -> int:
        """Most tokens of one draft: the window without x_{t+1}."""
        return self.config.window - 1

    @property
    def leaf_shape(self) -> tuple[int, int, int]:
        """Shape of the leaves of one request: (n, R, V)."""
        return self.config.circuit_window, self.config.rank, self.vocab_size

    def shortened(self, num_drafts: int) -> Self:
        """Return a part with the same distribution of its first tokens that computes only these.

        Later positions are summed out of the circuit exactly: a chain (FF, CP, HMM) keeps its leading parameters.
        A BTree, whose tree depends on the window, is returned unchanged.

        Args:
            num_drafts: Draft tokens to keep.
        """
        window = num_drafts + 1
        if window == self.config.window or not self.circuit.is_chain:
            return self
        like = next(self.parameters())
        short = type(self)(self.config.model_copy(update={"window": window})).to(like.device, like.dtype)
        short.head.load_state_dict(self.head.leading(self.circuit, short.circuit.window))
        return short.requires_grad_(like.requires_grad).train(self.training)

    def states(self, context: DraftContext) -> tuple[Tensor, tuple[Tensor, ...]]:
        """See `JointPart.states`."""
        embedding = None if context.inputs is None else context.inputs[:, -1]
        return self.head.states(context.states[:, -1], context.tokens[:, -1], embedding)

    def leaves(self, context: DraftContext, states: Tensor, positions: slice) -> Tensor:
        """See `JointPart.leaves`."""
        if isinstance(self.head.leaves, HeadLeaves):
            assert context.head is not None  # part of the contract, see `reads_head`
            return context.head.logits(states)
        return self.head.leaves.logits(states, positions).float()
