"""A joint distribution over a window as a circuit, whatever makes its parameters: what is known in, a draft out."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from mtpc.circuits import Circuit, CircuitParams
from mtpc.circuits.params import normalise, token_evidence
from mtpc.draft import Draft, DraftContext, Mode, TreeDraft, batched
from mtpc.draw import choose, stated
from mtpc.parallel.beams import Growth
from mtpc.parallel.circuit_head import normalised, tempered
from mtpc.parallel.part import ParallelPart, in_parts
from mtpc.parallel.tree import grow_tree
from mtpc.prompt_lookup.mixture import Copying
from mtpc.target_head.shared import Head

# Numbers of the leaves that are made at once: of all rows and positions where there are no more, else of one position
# and some rows.  With one component they are no larger than the draft itself, and all are made at once.
PART = 1 << 23


class JointPart(ParallelPart):
    """Drafts and scores with a circuit.

    Its leaves are over all tokens, or over the rows of the output head that it drafts through (`DraftContext.head`), which
    may be those of a draft vocabulary; what is drafted and stated is over all tokens.
    """

    circuit: Circuit
    drafts_trees: ClassVar[bool] = True

    @abstractmethod
    def states(self, known: DraftContext) -> tuple[Tensor, tuple[Tensor, ...]]:
        """What the leaves are made of, [B, n, ...], and unnormalised sums of the circuit, float32."""

    @abstractmethod
    def leaves(self, known: DraftContext, states: Tensor, positions: slice) -> Tensor:
        """Unnormalised leaves of some positions from their states: [B, p, R, tokens or rows of the head], float32."""

    def logits(self, known: DraftContext) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Unnormalised leaves [B, n, R, tokens or rows of the head] and sums of the circuit, float32."""
        states, sums = self.states(known)
        return self.leaves(known, states, slice(None)), sums

    def draft(
        self,
        known: DraftContext,
        temperature: Tensor | None,
        noise: Tensor | None,
        num_drafts: int,
        mode: Mode,
        copying: Copying | None = None,
    ) -> Draft:
        """See `ParallelPart.draft`; where leaves are large, rows are drafted in parts (see `PART`)."""
        if mode == "greedy":
            temperature = noise = None
        rows, most = len(known.tokens), max(1, PART // math.prod(self.leaf_shape[1:]))
        if rows <= most or self.circuit.rank == 1:
            return self._draft(known, temperature, noise, num_drafts, copying)
        drafts = []
        for part in in_parts(rows, most):
            heat, uniforms = (None if each is None else each[part] for each in (temperature, noise))
            copied = None if copying is None else copying.of_rows(part)
            drafts.append(self._draft(known.of_rows(part), heat, uniforms, num_drafts, copied))
        return batched(drafts)

    def _draft(
        self,
        known: DraftContext,
        temperature: Tensor | None,
        noise: Tensor | None,
        num_drafts: int,
        copying: Copying | None,
    ) -> Draft:
        """One token after the other: the row q(x_i | x_<i), the token from this very row, and what it says of the rest.

        With copying a row is the mixture with what would be copied.
        """
        rows, given, last = _Rows(known.head), known.tokens[:, -1:], self.given + num_drafts
        heat = None if temperature is None else temperature.masked_fill(temperature <= 0, 1.0)
        made, sums = self.states(known)
        sums = tuple(tempered(weights, heat).log_softmax(-1) for weights in sums)

        def leaves(start: int, end: int) -> Tensor:
            """Of some positions, unnormalised: [B, p, R, V]."""
            return tempered(self.leaves(known, made[:, start:end], slice(start, end)), heat)

        state = self.circuit.start(CircuitParams(made, sums))
        if self.given:
            state = self.circuit.advance(sums, 0, state, token_evidence(leaves(0, 1).log_softmax(-1), given))
        # What is drawn has a component that is likely to make it; what is copied need not: then they stay in logs.
        softmax = Tensor.softmax if copying is None else Tensor.log_softmax
        at_once = self.circuit.rank == 1 or len(given) * last * math.prod(self.leaf_shape[1:]) <= PART
        whole = softmax(leaves(self.given, last), -1) if at_once else None
        tokens: list[Tensor] = []
        drawn: list[Tensor] = []
        for drafted, position in enumerate(range(self.given, last)):
            here = softmax(leaves(position, position + 1), -1) if whole is None else whole[:, drafted, None]
            uniforms = None if noise is None else noise[:, drafted]
            if copying is None:
                row = stated(self.circuit.conditional(state, here[:, 0]))
                choice = choose(row, temperature, uniforms)
                token, evidence = rows.tokens(choice), token_evidence(here, choice[:, None]).log()
            else:
                own = rows.spread(stated(self.circuit.conditional(state, here[:, 0].exp())))  # [B, V]
                row = copying.mixed(own)
                token = choose(row, temperature, uniforms)
                copying, evidence = copying.drafted(token, copying.of(own)), rows.evidence(here, token[:, None])[0]
            tokens.append(token)
            drawn.append(row)
            if position + 1 < last:
                state = self.circuit.advance(sums, position, state, evidence)
            del here  # before the next are made
        del whole
        peaks = None if copying is None else torch.stack([row.amax(1) for row in drawn], 1)
        if temperature is None:
            return Draft(torch.stack(tokens, 1), None, peaks)
        probs = torch.stack(drawn, 1)
        return Draft(torch.stack(tokens, 1), rows.spread(probs) if copying is None else probs, peaks)

    def log_probs(self, known: DraftContext, tokens: Tensor, temperature: float, conditioned: bool = True) -> Tensor:
        params, text, evidence, possible = self._along(known, tokens, temperature)
        if not conditioned:
            evidence[:, : self.given] = 0.0
        prefixes = torch.logsumexp(self.circuit.beliefs(params.sums, evidence) + evidence, -1)  # [B, n]
        conditionals = torch.diff(prefixes, dim=1, prepend=torch.zeros_like(prefixes[:, :1]))
        kept = conditionals[:, : text.shape[1]].masked_fill(~possible, -torch.inf)
        return kept[:, self.given :]

    def likeliest(self, known: DraftContext, tokens: Tensor) -> Tensor:
        params, text, evidence, _ = self._along(known, tokens, 1.0)
        weights = normalise(self.circuit.beliefs(params.sums, evidence)).exp()[:, :, None]  # [B, n, 1, R]
        places = range(self.given, text.shape[1])  # one by one: of all tokens together they would take much memory
        rows = [(weights[:, place] @ params.leaves[:, place].exp()).argmax(-1) for place in places]
        return _Rows(known.head).tokens(torch.cat(rows, 1))

    def _along(
        self, known: DraftContext, tokens: Tensor, temperature: float
    ) -> tuple[CircuitParams, Tensor, Tensor, Tensor]:
        """The circuit, the text of its window as far as it is known, and both that `_Rows.evidence` returns for it."""
        token, (leaves, sums) = known.tokens[:, -1], self.logits(known)
        params = normalised(leaves, sums, leaves.new_full((len(leaves),), temperature))
        text = torch.cat([token[:, None], tokens], 1)[:, 1 - self.given :]
        # What comes after a token does not count for its conditional, so any may follow a shorter text.
        rest = params.leaves.shape[1] - text.shape[1]
        evidence, possible = _Rows(known.head).evidence(params.leaves[:, : text.shape[1]], text)
        return params, text, F.pad(evidence, (0, 0, 0, rest)), possible

    def draft_tree(
        self,
        known: DraftContext,
        temperature: Tensor | None,
        size: int,
        max_children: int | None = None,
        *,
        depth: int | None = None,
    ) -> TreeDraft:
        token = known.tokens[:, -1]  # [B]
        if temperature is not None:
            temperature = temperature.masked_fill(temperature <= 0, 1.0)
        params = normalised(*self.logits(known), temperature)
        depth = self.max_drafts if depth is None else min(depth, self.max_drafts)
        tree = grow_tree(self.circuit, params, token if self.given else None, size, depth, max_children)
        return tree._replace(tokens=_Rows(known.head).tokens(tree.tokens))

    def continued(
        self, growth: Growth, known: DraftContext, temperature: Tensor | None, depth: int, children: int, nodes: int
    ) -> Growth:
        params, given = normalised(*self.logits(known), temperature), known.tokens[:, -1] if self.given else None
        return growth.continued(self.circuit, params, known.head, depth, children, nodes, given)


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

    def evidence(self, leaves: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Evidence of tokens int64 [B, n] about the components, [B, n, R], and whether they are possible, bool [B, n].

        A token that no component can draft, as a copied one outside of the draft vocabulary, is evidence of nothing:
        counted as impossible in all components, it would leave no distribution of what follows.
        """
        places = tokens if self.head is None or self.head.index_by_token is None else self.head.index_by_token[tokens]
        found = token_evidence(leaves, places.clamp_min(0))
        possible = (places >= 0) & (found.amax(-1) > -torch.inf)
        return torch.where(possible[..., None], found, 0.0), possible
