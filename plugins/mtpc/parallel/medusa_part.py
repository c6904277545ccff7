"""Heads over the target's last state, independent of each other (draft method Medusa)."""

from __future__ import annotations

from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtpc.circuits import build_circuit
from mtpc.draft import DraftContext
from mtpc.parallel.config import MedusaHeadsConfig
from mtpc.parallel.independent_heads import StackedLinear
from mtpc.parallel.joint import JointPart


class MedusaPart(JointPart):
    """An FF circuit over x_{t+2}..x_{t+1+n} whose leaf i is a head of its own over h_t (arXiv 2401.10774, section 2.1).

    A head is a number of residual layers, x -> x + silu(W x + b), and an output layer. The first head predicts the
    token after the one that the target samples, so no token of the circuit's window is evidence.

    Attributes:
        config: Sizes.
        layers: Residual layers of all heads.
        outputs: The output layer of each head, or the one of all heads.
    """

    def __init__(self, config: MedusaHeadsConfig) -> None:
        super().__init__()
        self.config, self.vocab_size = config, config.vocab_size
        n, d = config.heads, config.hidden_size
        self.circuit = build_circuit("ff", n, 1)
        self.layers = nn.ModuleList([StackedLinear(n, d, d) for _ in range(config.layers)])
        outputs = 1 if config.shared_output else n
        self.outputs = nn.ModuleList([nn.Linear(d, config.vocab_size, bias=False) for _ in range(outputs)])

    @property
    def max_drafts(self) -> int:
        """One token of each head."""
        return self.config.heads

    @property
    def leaf_shape(self) -> tuple[int, int, int]:
        """Shape of the leaves of one request: (n, 1, V)."""
        return self.config.heads, 1, self.vocab_size

    def states(self, context: DraftContext) -> tuple[Tensor, tuple[Tensor, ...]]:
        """See `JointPart.states`."""
        x = context.states[:, -1:].expand(-1, self.config.heads, -1)  # [B, n, d]
        for layer in self.layers:
            x = x + F.silu(layer(x))
        return x, ()

    def leaves(self, context: DraftContext, states: Tensor, positions: slice) -> Tensor:
        """See `JointPart.leaves`."""
        if self.config.shared_output:
            logits = self.outputs[0](states.flatten(0, 1)).unflatten(0, states.shape[:2])
        else:
            places = zip(list(self.outputs)[positions], states.unbind(1), strict=True)
            logits = torch.stack([output(state) for output, state in places], 1)
        return logits[:, :, None].float()

    def shortened(self, num_drafts: int) -> Self:
        """Return a part of the first heads only, which shares their weights."""
        if num_drafts == self.config.heads:
            return self
        with torch.device("meta"):
            short = type(self)(self.config.model_copy(update={"heads": num_drafts}))
        weights = self.state_dict()
        kept = {name: weights[name] for name in short.state_dict()}
        stacked = {name: tensor[:num_drafts] for name, tensor in kept.items() if name.startswith("layers.")}
        short.load_state_dict(kept | stacked, assign=True)
        return short.requires_grad_(next(self.parameters()).requires_grad).train(self.training)
