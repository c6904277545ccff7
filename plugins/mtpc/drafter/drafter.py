"""The drafter: one hidden state and one token in, a draft with its distributions out."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtpc.circuits import CircuitParams, build_circuit
from mtpc.circuits.base import select_leaves
from mtpc.circuits.params import draw, normalise, token_evidence
from mtpc.drafter.config import DrafterConfig
from mtpc.drafter.tree import TreeDraft, grow_tree
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
    With ``token_input`` the head reads x_{t+1} itself, and its circuit is the law of x_{t+2}..x_{t+n} given it.
    """

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.config = config
        self.circuit = build_circuit(config.circuit, config.circuit_window, config.rank)
        self.head = CircuitHead(config, self.circuit)

    @property
    def given(self) -> int:
        """Tokens of the circuit's window that are evidence: 1, the target's own, or 0 where the head reads it."""
        return self.config.circuit_window - self.max_drafts

    @property
    def max_drafts(self) -> int:
        """Tokens one draft can hold: the window without the target's own token."""
        return self.config.window - 1

    @property
    def noise_size(self) -> int:
        """Uniforms that one sampled draft of one row consumes."""
        return self.circuit.num_latents + self.max_drafts

    def shortened(self, num_drafts: int) -> Drafter:
        """A drafter with the same distribution of its first ``num_drafts`` tokens that computes no more than these.

        The positions after them are summed out of the circuit, exactly: a chain (FF, CP, HMM) keeps its leading
        parameters. A BTree, whose tree depends on the window, stays as it is.
        """
        window = num_drafts + 1
        if window == self.config.window or not self.circuit.is_chain:
            return self
        weights = self.state_dict()
        like = next(self.parameters())
        short = Drafter(replace(self.config, window=window)).to(like.device, like.dtype)
        short.load_state_dict(
            {name: weights[name][tuple(map(slice, kept.shape))] for name, kept in short.state_dict().items()}
        )
        return short.requires_grad_(like.requires_grad).train(self.training)

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
            return Draft(self._greedy(self.head(hidden, token), token, num_drafts), None)
        assert temperature is not None and noise is not None  # part of the contract of the other modes
        if mode == "sampled":
            return self._sampled(self.head(hidden, token, temperature), token, noise, num_drafts)
        greedy_rows = temperature <= 0
        logits = self.head.logits(hidden, token)
        positive = temperature.masked_fill(greedy_rows, 1.0)
        sampled = self._sampled(normalised(*logits, positive), token, noise, num_drafts)
        assert sampled.probs is not None
        greedy = self._greedy(normalised(*logits), token, num_drafts)
        one_hot = F.one_hot(greedy, self.config.vocab_size).to(sampled.probs.dtype)
        return Draft(
            torch.where(greedy_rows[:, None], greedy, sampled.tokens),
            torch.where(greedy_rows[:, None, None], one_hot, sampled.probs),
        )

    def draft_tree(
        self,
        hidden: Tensor,
        token: Tensor,
        temperature: Tensor | None,
        size: int,
        max_children: int | None = None,
        *,
        depth: int | None = None,
        width: int | None = None,
    ) -> TreeDraft:
        """Draft a tree of ``size`` nodes after ``token``, the most probable continuations under the circuit.

        hidden, token: as for `draft`.  temperature: float32 [B]; rows at 0, and all where it is None, are drafted at
        temperature 1: only the order of the probabilities counts.  depth: tokens of one path at most, max_drafts by
        default.  max_children, width, cost and errors: see `grow_tree`.  Verified by the rules of `mtpc.verify.tree`.
        """
        if temperature is not None:
            temperature = temperature.masked_fill(temperature <= 0, 1.0)
        params = self.head(hidden, token, temperature)
        depth = self.max_drafts if depth is None else min(depth, self.max_drafts)
        return grow_tree(self.circuit, params, token if self.given else None, size, depth, max_children, width)

    def _greedy(self, params: CircuitParams, token: Tensor, num_drafts: int) -> Tensor:
        drafts = self.circuit.greedy(params, token if self.given else None)
        return drafts[:, self.given : self.given + num_drafts]

    def _sampled(self, params: CircuitParams, token: Tensor, noise: Tensor, num_drafts: int) -> Draft:
        """Condition on the token, sample all positions at once, then read off every conditional in one pass."""
        circuit, leaves, sums = self.circuit, params.leaves, params.sums
        known = token[:, None][:, : self.given]  # [B, given]
        if self.given:
            sums = circuit.condition_sums(sums, token_evidence(leaves[:, :1], known)[:, 0])
        components = circuit.sample_components(sums, noise[:, : circuit.num_latents])[:, self.given :]
        probs = leaves[:, self.given :].exp()  # [B, n - 1, R, V]
        tokens = draw(select_leaves(probs, components), noise[:, circuit.num_latents :])
        evidence = token_evidence(leaves, torch.cat([known, tokens], 1))
        weights = normalise(circuit.beliefs(params.sums, evidence))[:, self.given :].exp()
        conditionals = (weights[:, :, None] @ probs)[:, :, 0]  # [B, n - 1, V]
        return Draft(tokens[:, :num_drafts], conditionals[:, :num_drafts])
