"""A circuit as the window part of a drafter: what is known in, a draft with its distributions out."""

from __future__ import annotations

from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from mtpc.circuits import CircuitParams, build_circuit
from mtpc.circuits.base import select_leaves
from mtpc.circuits.params import normalise, token_evidence
from mtpc.copying.mixture import Copying
from mtpc.draft import Draft, Known, Mode, TreeDraft
from mtpc.draw import choose, draw
from mtpc.heads.head import CircuitHead, normalised
from mtpc.window.config import CircuitConfig
from mtpc.window.part import WindowPart
from mtpc.window.tree import grow_tree


class CircuitWindow(WindowPart):
    """A circuit and the head that parameterises it; it reads the last state that is known and the token it predicted.

    The window predicts x_{t+1}..x_{t+n} from h_t.  When an engine drafts, the target has already sampled
    x_{t+1}: it is evidence.  The circuit is conditioned on it exactly and x_{t+2}..x_{t+n} are drafted, so
    no bonus token is lost and no second forward pass is needed (beyond algorithm 2 of the MTPC paper).
    With ``token_input`` the head reads x_{t+1} itself, and its circuit is the law of x_{t+2}..x_{t+n} given it.
    Behind a serial part the same holds of its last state and the draft that this predicted.
    """

    def __init__(self, config: CircuitConfig) -> None:
        super().__init__()
        self.config, self.vocab_size = config, config.vocab_size
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

    def draft(
        self,
        known: Known,
        temperature: Tensor | None,
        noise: Tensor | None,
        num_drafts: int,
        mode: Mode,
        copying: Copying | None = None,
    ) -> Draft:
        if copying is not None:
            return self._copying(known, temperature, noise, num_drafts, mode, copying)
        hidden, token = known.states[:, -1], known.tokens[:, -1]  # [B, d], [B]
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

    def _copying(
        self,
        known: Known,
        temperature: Tensor | None,
        noise: Tensor | None,
        num_drafts: int,
        mode: Mode,
        copying: Copying,
    ) -> Draft:
        """One token after the other, from the mixture of what would be copied and the circuit given all tokens before.

        In as many dependent steps as the conditionals take that a draft without copying states.
        """
        hidden, token = known.states[:, -1], known.tokens[:, -1]  # [B, d], [B]
        positive = None if temperature is None else temperature.masked_fill(temperature <= 0, 1.0)
        params = self.head(hidden, token, positive).upcast()
        probs, sums, position = params.leaves.exp(), params.sums, 0
        state = self.circuit.start(params)
        if self.given:
            state = self.circuit.advance(sums, 0, state, token_evidence(params.leaves[:, :1], token[:, None]))
            position = 1
        tokens, stated, peaks = [], [], []
        for drafted in range(num_drafts):
            own = (state[-1].softmax(-1) @ probs[:, position])[:, 0]  # [B, V]
            mixed = copying.mixed(own)
            uniforms = None if noise is None else noise[:, self.circuit.num_latents + drafted]
            tokens.append(choose(mixed, temperature, uniforms, mode))
            stated.append(mixed)
            peaks.append(mixed.amax(1))
            if drafted + 1 < num_drafts:
                copying = copying.drafted(tokens[-1], copying.of(own))
                evidence = token_evidence(params.leaves[:, position : position + 1], tokens[-1][:, None])
                state = self.circuit.advance(sums, position, state, evidence)
                position += 1
        probs = None if mode == "greedy" else torch.stack(stated, 1)
        return Draft(torch.stack(tokens, 1), probs, torch.stack(peaks, 1))

    def log_probs(self, known: Known, tokens: Tensor, temperature: float, conditioned: bool = True) -> Tensor:
        hidden, token = known.states[:, -1], known.tokens[:, -1]  # [B, d], [B]
        params = self.head(hidden, token, hidden.new_full((len(hidden),), temperature, dtype=torch.float32))
        text = torch.cat([token[:, None], tokens], 1)[:, 1 - self.given :]
        # What comes after a token does not count for its conditional, so any may follow a shorter text.
        evidence = token_evidence(params.leaves, F.pad(text, (0, self.config.circuit_window - text.shape[1])))
        if not conditioned:
            evidence[:, : self.given] = 0.0
        prefixes = torch.logsumexp(self.circuit.beliefs(params.sums, evidence) + evidence, -1)  # [B, n]
        conditionals = torch.diff(prefixes, dim=1, prepend=torch.zeros_like(prefixes[:, :1]))
        return conditionals[:, self.given :][:, : tokens.shape[1]]

    def draft_tree(
        self,
        known: Known,
        temperature: Tensor | None,
        size: int,
        max_children: int | None = None,
        *,
        depth: int | None = None,
        width: int | None = None,
    ) -> TreeDraft:
        hidden, token = known.states[:, -1], known.tokens[:, -1]  # [B, d], [B]
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
