"""The drafter: one hidden state and one token in, a draft with its distributions out."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtpc.circuits import CircuitParams, build_circuit
from mtpc.circuits.base import select_leaves
from mtpc.circuits.params import draw, normalise, token_evidence
from mtpc.drafter.config import DrafterConfig
from mtpc.heads.head import CircuitHead, normalised

Mode = Literal["sampled", "greedy", "mixed"]


class Draft(NamedTuple):
    """Drafted tokens and the distributions they were drawn from.

    tokens: int64 [B, K].  probs: float32 [B, K, V], the exact conditionals q(x_i | x_<i) of the circuit
    at the request's temperature; one-hot in the rows of greedy requests; None where all rows are greedy.
    """

    tokens: Tensor
    probs: Tensor | None


class Drafter(nn.Module):
    """A circuit and the head that parameterises it.

    The window predicts x_{t+1}..x_{t+n} from h_t.  When an engine drafts, the target has already sampled
    x_{t+1}: it is evidence.  The circuit is conditioned on it exactly and x_{t+2}..x_{t+n} are drafted, so
    no bonus token is lost and no second forward pass is needed (beyond algorithm 2 of the MTPC paper).
    """

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.config = config
        self.circuit = build_circuit(config.circuit, config.window, config.rank)
        self.head = CircuitHead(config, self.circuit)

    @property
    def max_drafts(self) -> int:
        """Tokens one draft can hold: the window without the target's own token."""
        return self.config.window - 1

    @property
    def noise_size(self) -> int:
        """Uniforms that one sampled draft of one row consumes."""
        return self.circuit.num_latents + self.max_drafts

    def draft(
        self,
        hidden: Tensor,
        token: Tensor,
        temperature: Tensor | None,
        noise: Tensor | None,
        num_drafts: int,
        mode: Mode,
    ) -> Draft:
        """Draft ``num_drafts`` <= max_drafts tokens after ``token``.

        hidden: [B, d] of the position that predicted ``token``, after the target's final norm.
        token: int64 [B], sampled by the target.  temperature: float32 [B].  noise: uniforms in [0, 1),
        [B, noise_size].  mode: "sampled" when every temperature is positive, "greedy" when none is (then
        temperature and noise may be None), "mixed" otherwise.  Shapes are static and nothing waits for
        the host.
        """
        if mode == "greedy":
            return Draft(self._greedy(self.head(hidden), token, num_drafts), None)
        assert temperature is not None and noise is not None  # part of the contract of the other modes
        if mode == "sampled":
            return self._sampled(self.head(hidden, temperature), token, noise, num_drafts)
        greedy_rows = temperature <= 0
        logits = self.head.logits(hidden)
        positive = temperature.masked_fill(greedy_rows, 1.0)
        sampled = self._sampled(normalised(*logits, positive), token, noise, num_drafts)
        assert sampled.probs is not None
        greedy = self._greedy(normalised(*logits), token, num_drafts)
        one_hot = F.one_hot(greedy, self.config.vocab_size).to(sampled.probs.dtype)
        return Draft(
            torch.where(greedy_rows[:, None], greedy, sampled.tokens),
            torch.where(greedy_rows[:, None, None], one_hot, sampled.probs),
        )

    def _greedy(self, params: CircuitParams, token: Tensor, num_drafts: int) -> Tensor:
        return self.circuit.greedy(params, token)[:, 1 : num_drafts + 1]

    def _sampled(self, params: CircuitParams, token: Tensor, noise: Tensor, num_drafts: int) -> Draft:
        """Condition on the token, sample all positions at once, then read off every conditional in one pass."""
        circuit, leaves = self.circuit, params.leaves
        first = token_evidence(leaves[:, :1], token[:, None])[:, 0]  # [B, R]
        sums = circuit.condition_sums(params.sums, first)
        components = circuit.sample_components(sums, noise[:, : circuit.num_latents])[:, 1:]
        probs = leaves[:, 1:].exp()  # [B, n - 1, R, V]
        tokens = draw(select_leaves(probs, components), noise[:, circuit.num_latents :])
        evidence = token_evidence(leaves, torch.cat([token[:, None], tokens], 1))
        weights = normalise(circuit.beliefs(params.sums, evidence))[:, 1:].exp()
        conditionals = (weights[:, :, None] @ probs)[:, :, 0]  # [B, n - 1, V]
        return Draft(tokens[:, :num_drafts], conditionals[:, :num_drafts])
