"""A joint distribution over a window as a circuit, whatever makes its parameters: what is known in, a draft out."""

from __future__ import annotations

from abc import abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor

from mtpc.circuits import Circuit, CircuitParams
from mtpc.circuits.base import select_leaves
from mtpc.circuits.params import normalise, token_evidence
from mtpc.copying.mixture import Copying
from mtpc.draft import Draft, Known, Mode, TreeDraft
from mtpc.draw import choose, draw
from mtpc.heads.head import normalised
from mtpc.target_head.shared import Head
from mtpc.window.part import WindowPart
from mtpc.window.tree import grow_tree


class JointWindow(WindowPart):
    """Drafts and scores with a circuit.

    Its leaves are over all tokens, or over the rows of the output head that it drafts through (`Known.head`), which
    may be those of a draft vocabulary; what is drafted and stated is over all tokens.
    """

    circuit: Circuit

    @abstractmethod
    def logits(self, known: Known) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Unnormalised leaves [B, n, R, tokens or rows of the head] and sums of the circuit, float32."""

    @property
    def noise_size(self) -> int:
        """Uniforms that one sampled draft of one row consumes."""
        return self.circuit.num_latents + self.max_drafts

    def draft(
        self,
        known: Known,
        temperature: Tensor | None,
        noise: Tensor | None,
        num_drafts: int,
        mode: Mode,
        copying: Copying | None = None,
    ) -> Draft:
        rows = _Rows(known.head)
        if copying is not None:
            return self._copying(known, rows, temperature, noise, num_drafts, mode, copying)
        logits, token = self.logits(known), known.tokens[:, -1]
        if mode == "greedy":
            return Draft(rows.tokens(self._greedy(normalised(*logits), token, num_drafts)), None)
        assert temperature is not None and noise is not None  # part of the contract of the other modes
        if mode == "sampled":
            draft = self._sampled(normalised(*logits, temperature), token, noise, num_drafts)
            assert draft.probs is not None
            return Draft(rows.tokens(draft.tokens), rows.spread(draft.probs))
        greedy_rows = temperature <= 0
        positive = temperature.masked_fill(greedy_rows, 1.0)
        sampled = self._sampled(normalised(*logits, positive), token, noise, num_drafts)
        assert sampled.probs is not None
        greedy = self._greedy(normalised(*logits), token, num_drafts)
        one_hot = F.one_hot(greedy, sampled.probs.shape[-1]).to(sampled.probs.dtype)
        probs = torch.where(greedy_rows[:, None, None], one_hot, sampled.probs)
        return Draft(rows.tokens(torch.where(greedy_rows[:, None], greedy, sampled.tokens)), rows.spread(probs))

    def _copying(
        self,
        known: Known,
        rows: _Rows,
        temperature: Tensor | None,
        noise: Tensor | None,
        num_drafts: int,
        mode: Mode,
        copying: Copying,
    ) -> Draft:
        """One token after the other, from the mixture of what would be copied and the circuit given all tokens before.

        In as many dependent steps as the conditionals take that a draft without copying states.
        """
        token = known.tokens[:, -1]  # [B]
        positive = None if temperature is None else temperature.masked_fill(temperature <= 0, 1.0)
        params = normalised(*self.logits(known), positive).upcast()
        probs, sums, position = params.leaves.exp(), params.sums, 0
        state = self.circuit.start(params)
        if self.given:
            state = self.circuit.advance(sums, 0, state, token_evidence(params.leaves[:, :1], token[:, None]))
            position = 1
        tokens, stated, peaks = [], [], []
        for drafted in range(num_drafts):
            own = rows.spread((state[-1].softmax(-1) @ probs[:, position])[:, 0])  # [B, V]
            mixed = copying.mixed(own)
            uniforms = None if noise is None else noise[:, self.circuit.num_latents + drafted]
            tokens.append(choose(mixed, temperature, uniforms, mode))
            stated.append(mixed)
            peaks.append(mixed.amax(1))
            if drafted + 1 < num_drafts:
                copying = copying.drafted(tokens[-1], copying.of(own))
                leaves = params.leaves[:, position : position + 1]
                state = self.circuit.advance(sums, position, state, rows.evidence(leaves, tokens[-1][:, None]))
                position += 1
        whole = None if mode == "greedy" else torch.stack(stated, 1)
        return Draft(torch.stack(tokens, 1), whole, torch.stack(peaks, 1))

    def log_probs(self, known: Known, tokens: Tensor, temperature: float, conditioned: bool = True) -> Tensor:
        rows, (params, text, evidence) = _Rows(known.head), self._along(known, tokens, temperature)
        if not conditioned:
            evidence[:, : self.given] = 0.0
        prefixes = torch.logsumexp(self.circuit.beliefs(params.sums, evidence) + evidence, -1)  # [B, n]
        conditionals = torch.diff(prefixes, dim=1, prepend=torch.zeros_like(prefixes[:, :1]))
        kept = conditionals[:, : text.shape[1]].masked_fill(~rows.drafted(text), -torch.inf)
        return kept[:, self.given :]

    def likeliest(self, known: Known, tokens: Tensor) -> Tensor:
        params, text, evidence = self._along(known, tokens, 1.0)
        weights = normalise(self.circuit.beliefs(params.sums, evidence)).exp()[:, :, None]  # [B, n, 1, R]
        places = range(self.given, text.shape[1])  # one by one: of all tokens together they would take much memory
        rows = [(weights[:, place] @ params.leaves[:, place].exp()).argmax(-1) for place in places]
        return _Rows(known.head).tokens(torch.cat(rows, 1))

    def _along(self, known: Known, tokens: Tensor, temperature: float) -> tuple[CircuitParams, Tensor, Tensor]:
        """The circuit, the text of its window as far as it is told, and what that says of its components, [B, n, R]."""
        token, (leaves, sums) = known.tokens[:, -1], self.logits(known)
        params = normalised(leaves, sums, leaves.new_full((len(leaves),), temperature))
        text = torch.cat([token[:, None], tokens], 1)[:, 1 - self.given :]
        # What comes after a token does not count for its conditional, so any may follow a shorter text.
        rest = params.leaves.shape[1] - text.shape[1]
        evidence = _Rows(known.head).evidence(params.leaves[:, : text.shape[1]], text)
        return params, text, F.pad(evidence, (0, 0, 0, rest))

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
        token = known.tokens[:, -1]  # [B]
        if temperature is not None:
            temperature = temperature.masked_fill(temperature <= 0, 1.0)
        params = normalised(*self.logits(known), temperature)
        depth = self.max_drafts if depth is None else min(depth, self.max_drafts)
        tree = grow_tree(self.circuit, params, token if self.given else None, size, depth, max_children, width)
        return tree._replace(tokens=_Rows(known.head).tokens(tree.tokens))

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
        probs = leaves[:, self.given :].exp()  # [B, n - given, R, V]
        tokens = draw(select_leaves(probs, components), noise[:, circuit.num_latents :])
        evidence = token_evidence(leaves, torch.cat([known, tokens], 1))
        weights = normalise(circuit.beliefs(params.sums, evidence))[:, self.given :].exp()
        conditionals = (weights[:, :, None] @ probs)[:, :, 0]  # [B, n - given, V]
        return Draft(tokens[:, :num_drafts], conditionals[:, :num_drafts])


class _Rows:
    """Between the last axis of the leaves and all tokens: the rows of a head, or where there is none the same."""

    def __init__(self, head: Head | None) -> None:
        self.head = head

    def tokens(self, rows: Tensor) -> Tensor:
        """The tokens of rows, int64 of any shape."""
        return rows if self.head is None else self.head.tokens_of(rows)

    def spread(self, probs: Tensor) -> Tensor:
        """Over all tokens: [..., rows] -> [..., V]."""
        return probs if self.head is None else self.head.spread(probs)

    def drafted(self, tokens: Tensor) -> Tensor:
        """Whether tokens, int64 of any shape, have rows, hence any probability: bool of their shape."""
        if self.head is None or self.head.places is None:
            return torch.ones_like(tokens, dtype=torch.bool)
        return self.head.places[tokens] >= 0

    def evidence(self, leaves: Tensor, tokens: Tensor) -> Tensor:
        """`token_evidence` of tokens int64 [B, n]; one without a row says nothing of the components: [B, n, R]."""
        if self.head is None or self.head.places is None:
            return token_evidence(leaves, tokens)
        places = self.head.places[tokens]
        found = token_evidence(leaves, places.clamp_min(0))
        return torch.where(places[..., None] >= 0, found, 0.0)
