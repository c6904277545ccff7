"""Parallel heads behind an autoregressive part (draft method Gumiho)."""

from __future__ import annotations

from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from mtpc.circuits import build_circuit
from mtpc.draft import DraftContext
from mtpc.parallel.circuit_head import IDENTITY_BIAS
from mtpc.parallel.config import ParallelConfig
from mtpc.parallel.independent_heads import Components, ParallelHeads, StackedLinear
from mtpc.parallel.joint import JointPart
from mtpc.parallel.sums import SumHead


class IndependentPart(JointPart):
    """A circuit over n tokens whose leaves are distributions of the target's output head.

    Every position has a head that reads cat(o_{t+1}, o_{t+2}): the input projections of the last two positions (Gumiho
    paper, section 3.3, equations 8 to 10). The autoregressive part's draft tokens are therefore conditioned on.
    With "ff" the positions are independent, as Gumiho's are. With any other circuit they depend on each other, and each
    conditional is exact.

    Args:
        config: Sizes and circuit type.
        hidden_size: d of the target.
        vocab_size: V of the target.
        eps: Epsilon of the norm behind the heads; None: there is no norm.
    """

    reads_head = True
    reads_autoregressive: ClassVar[bool] = True

    def __init__(self, config: ParallelConfig, hidden_size: int, vocab_size: int, eps: float | None) -> None:
        super().__init__()
        self.config, self.vocab_size, self.sizes = config, vocab_size, (hidden_size, eps)
        n, rank = config.positions, config.rank
        self.circuit = build_circuit(config.circuit, n, rank)
        self.heads = ParallelHeads(n, hidden_size, config.blocks)
        self.norm = nn.Identity() if eps is None else nn.RMSNorm(hidden_size, eps)
        shapes = self.circuit.sum_shapes()
        self.components = Components(n, rank, hidden_size, config.component_features) if rank > 1 else None
        self.sums = SumHead(shapes, 2 * hidden_size, config.sum_features) if shapes else None

    @property
    def max_drafts(self) -> int:
        """One token of each head."""
        return self.config.positions

    @property
    def leaf_shape(self) -> tuple[int, int, int]:
        """Shape of the leaves of one request: (n, R, V)."""
        return self.config.positions, self.config.rank, self.vocab_size

    def states(self, context: DraftContext) -> tuple[Tensor, tuple[Tensor, ...]]:
        """See `JointPart.states`."""
        assert context.inputs is not None  # part of the contract, see `reads_head`
        inputs = context.inputs[:, -2:].flatten(1)
        states = self.heads(inputs)
        whole: Tensor = states[:, :, None] if self.components is None else self.components(states)
        if isinstance(self.norm, nn.RMSNorm):
            whole = self.norm(whole.to(self.norm.weight.dtype))
        return whole, () if self.sums is None else tuple(weights.float() for weights in self.sums(inputs))

    def leaves(self, context: DraftContext, states: Tensor, positions: slice) -> Tensor:
        """See `JointPart.leaves`."""
        assert context.head is not None  # part of the contract
        return context.head.logits(states)

    @torch.no_grad()
    def initialize(self, norm: Tensor) -> None:
        """Initialize for training.

        Args:
            norm: [d], weights of the target's final norm, which its output head expects.
        """
        self.heads.initialize()
        if self.components is not None:
            self.components.initialize()
        if self.sums is not None:
            self.sums.initialize(IDENTITY_BIAS)
        if isinstance(self.norm, nn.RMSNorm):
            self.norm.weight.copy_(norm)

    def shortened(self, num_drafts: int) -> Self:
        """Return a part of the first tokens only: a chain keeps its leading parameters, a BTree stays unchanged."""
        if num_drafts == self.config.positions or not self.circuit.is_chain:
            return self
        like, (size, eps) = next(self.parameters()), self.sizes
        short = type(self)(self.config.model_copy(update={"positions": num_drafts}), size, self.vocab_size, eps)
        weights = self.state_dict()
        for name, module in self.named_modules():
            if isinstance(module, StackedLinear):
                for tensor in ("weight", "bias"):
                    weights[f"{name}.{tensor}"] = weights[f"{name}.{tensor}"][:num_drafts]
        if self.sums is not None:
            weights |= {f"sums.{name}": value for name, value in self.sums.leading(self.circuit, num_drafts).items()}
        short.load_state_dict(weights)
        return short.to(like.device, like.dtype).requires_grad_(like.requires_grad).train(self.training)
