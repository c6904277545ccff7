"""Drafting from a joint distribution over a window of tokens, given as a circuit."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from mtpc.circuits import Circuit, CircuitParams
from mtpc.circuits.params import known_evidence, normalize_log, token_evidence
from mtpc.draft import Draft, DraftContext, Mode, TreeDraft
from mtpc.draw import choose, renormalized
from mtpc.memory import MAX_PROBS
from mtpc.parallel.beams import BeamTree
from mtpc.parallel.circuit_head import tempered, to_circuit_params
from mtpc.parallel.part import ParallelPart, draft_in_parts, in_parts
from mtpc.parallel.tree import grow_tree
from mtpc.prompt_lookup.mixture import Copying
from mtpc.target_head.shared import Head

# Leaf probabilities that are computed at once: all where there are no more, else those of one position and some
# requests. With one component they are as large as the draft itself and are always computed at once.
MAX_LEAVES = 1 << 23


class JointPart(ParallelPart):
    """A parallel part that drafts and scores with a circuit.

    Its leaves are over all tokens, or over the rows of the output head that it drafts through (`DraftContext.head`),
    which may be those of a draft vocabulary. Draft tokens and their distributions are always over all tokens.

    Attributes:
        circuit: The structure.
    """

    circuit: Circuit
    drafts_trees: ClassVar[bool] = True

    @abstractmethod
    def states(self, context: DraftContext) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Compute what the leaves are made of, [B, n, ...], and the circuit's unnormalized sums, float32."""

    @abstractmethod
    def leaves(self, context: DraftContext, states: Tensor, positions: slice) -> Tensor:
        """Compute the unnormalized leaves of some positions.

        Args:
            context: As for `states`.
            states: Leaf states of these positions, [B, p, ...].
            positions: Which positions of the window they are.

        Returns:
            float32 [B, p, R, V], or the head's rows instead of V.
        """

    def logits(self, context: DraftContext) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Compute unnormalized leaves [B, n, R, V or the head's rows] and the circuit's sums, float32."""
        states, sums = self.states(context)
        return self.leaves(context, states, slice(None)), sums

    def _leaves_of_position(self, context: DraftContext) -> int:
        """Return how many leaf probabilities a position of a request has: R times V, or times the head's rows."""
        ids = None if context.head is None else context.head.ids
        return math.prod(self.leaf_shape[1:-1]) * (self.leaf_shape[-1] if ids is None else len(ids))

    def draft(
        self,
        context: DraftContext,
        temperature: Tensor | None,
        noise: Tensor | None,
        num_drafts: int,
        mode: Mode,
        copying: Copying | None = None,
    ) -> Draft:
        """See `ParallelPart.draft`; where leaves are large, some requests are drafted at a time (see `MAX_LEAVES`)."""
        if mode == "greedy":
            temperature = noise = None
        rows, most = len(context.tokens), max(1, MAX_LEAVES // self._leaves_of_position(context))
        if rows <= most or self.circuit.rank == 1:
            return self._draft(context, temperature, noise, num_drafts, copying)
        parts = in_parts(rows, most)
        return draft_in_parts(self._draft, parts, context, temperature, noise, num_drafts, copying)

    def _draft(
        self,
        context: DraftContext,
        temperature: Tensor | None,
        noise: Tensor | None,
        num_drafts: int,
        copying: Copying | None,
    ) -> Draft:
        """Draft token by token: compute q(x_i | x_<i), draw the token from it, then advance the circuit's state.

        With prompt lookup the distribution is the mixture with the copied token.
        """
        rows, given, last = _HeadRows(context.head), context.tokens[:, -1:], self.num_evidence + num_drafts
        positive_temperature = None if temperature is None else temperature.masked_fill(temperature <= 0, 1.0)
        leaf_states, sums = self.states(context)
        sums = tuple(tempered(weights, positive_temperature).log_softmax(-1) for weights in sums)

        def leaves(start: int, end: int) -> Tensor:
            """Compute unnormalized leaves of some positions, [B, p, R, V]."""
            return tempered(self.leaves(context, leaf_states[:, start:end], slice(start, end)), positive_temperature)

        state = self.circuit.start(CircuitParams(leaf_states, sums))
        if self.num_evidence:
            first = leaves(0, 1).log_softmax(-1)
            known = token_evidence(first, given) if context.head is None else rows.evidence(first, given)[0]
            state = self.circuit.advance(sums, 0, state, known)
            del first  # free it before the draft tokens' leaves
        # A drawn token is likely under some component; a copied one may underflow in all, so its leaves stay in logs.
        softmax = Tensor.softmax if copying is None else Tensor.log_softmax
        at_once = self.circuit.rank == 1 or len(given) * last * self._leaves_of_position(context) <= MAX_LEAVES
        whole = softmax(leaves(self.num_evidence, last), -1) if at_once else None
        tokens: list[Tensor] = []
        drawn: list[Tensor] = []
        for drafted, position in enumerate(range(self.num_evidence, last)):
            here = softmax(leaves(position, position + 1), -1) if whole is None else whole[:, drafted, None]
            uniforms = None if noise is None else noise[:, drafted]
            if copying is None:
                row = renormalized(self.circuit.conditional(state, here[:, 0]))
                choice = choose(row, temperature, uniforms)
                token, evidence = rows.tokens(choice), token_evidence(here, choice[:, None]).log()
            else:
                drafter = rows.spread(renormalized(self.circuit.conditional(state, here[:, 0].exp())))  # [B, V]
                row = copying.mixed(drafter)
                token = choose(row, temperature, uniforms)
                copying, evidence = (
                    copying.drafted(token, copying.drafter_probability(drafter)),
                    rows.evidence(here, token[:, None])[0],
                )
            tokens.append(token)
            drawn.append(row)
            if position + 1 < last:
                state = self.circuit.advance(sums, position, state, evidence)
            del here  # free it before the next position's
        del whole
        if temperature is None:
            return Draft(torch.stack(tokens, 1), None)
        probs = torch.stack(drawn, 1)
        return Draft(torch.stack(tokens, 1), rows.spread(probs) if copying is None else probs)

    def log_probs(self, context: DraftContext, tokens: Tensor, temperature: float, conditioned: bool = True) -> Tensor:
        """See `ParallelPart.log_probs`."""
        params, text, evidence, possible = self._along(context, tokens, temperature)
        if not conditioned:
            evidence[:, : self.num_evidence] = 0.0
        prefixes = torch.logsumexp(self.circuit.beliefs(params.sums, evidence) + evidence, -1)  # [B, n]
        conditionals = torch.diff(prefixes, dim=1, prepend=torch.zeros_like(prefixes[:, :1]))
        kept = conditionals[:, : text.shape[1]].masked_fill(~possible, -torch.inf)
        return kept[:, self.num_evidence :]

    def most_probable_tokens(self, context: DraftContext, tokens: Tensor) -> Tensor:
        """See `ParallelPart.most_probable_tokens`."""
        params, text, evidence, _ = self._along(context, tokens, 1.0)
        weights = normalize_log(self.circuit.beliefs(params.sums, evidence)).exp()[:, :, None]  # [B, n, 1, R]
        places = range(self.num_evidence, text.shape[1])  # one by one: all positions together would take much memory
        rows = [(weights[:, place] @ params.leaves[:, place].exp()).argmax(-1) for place in places]
        return _HeadRows(context.head).tokens(torch.cat(rows, 1))

    def _along(
        self, context: DraftContext, tokens: Tensor, temperature: float
    ) -> tuple[CircuitParams, Tensor, Tensor, Tensor]:
        """Return the circuit, the known tokens of its window, and both results of `_HeadRows.evidence` for them."""
        token, (leaves, sums) = context.tokens[:, -1], self.logits(context)
        params = to_circuit_params(leaves, sums, leaves.new_full((len(leaves),), temperature))
        text = torch.cat([token[:, None], tokens], 1)[:, 1 - self.num_evidence :]
        # Later tokens do not change a conditional, so a shorter text is padded with no evidence.
        rest = params.leaves.shape[1] - text.shape[1]
        evidence, possible = _HeadRows(context.head).evidence(params.leaves[:, : text.shape[1]], text)
        return params, text, F.pad(evidence, (0, 0, 0, rest)), possible

    def draft_tree(
        self,
        context: DraftContext,
        temperature: Tensor | None,
        size: int,
        max_children: int | None = None,
        *,
        depth: int | None = None,
    ) -> TreeDraft:
        """See `ParallelPart.draft_tree`; where leaves are large, for some requests at a time (see `MAX_PROBS`)."""
        rows, most = len(context.tokens), max(1, MAX_PROBS // (self.leaf_shape[0] * self._leaves_of_position(context)))
        if rows > most:
            trees = []
            for part in in_parts(rows, most):
                some = None if temperature is None else temperature[part]
                trees.append(self.draft_tree(context.of_rows(part), some, size, max_children, depth=depth))
            return TreeDraft(*map(torch.cat, zip(*trees, strict=True)))
        if temperature is not None:
            temperature = temperature.masked_fill(temperature <= 0, 1.0)
        params = to_circuit_params(*self.logits(context), temperature)
        depth = self.max_drafts if depth is None else min(depth, self.max_drafts)
        tree = grow_tree(self.circuit, params, self._given(context), size, depth, max_children)
        return tree._replace(tokens=_HeadRows(context.head).tokens(tree.tokens))

    def extend_tree(
        self, growth: BeamTree, context: DraftContext, temperature: Tensor | None, depth: int, children: int, nodes: int
    ) -> BeamTree:
        """See `ParallelPart.extend_tree`."""
        params, given = to_circuit_params(*self.logits(context), temperature), self._given(context)
        return growth.with_parallel_levels(self.circuit, params, context.head, depth, children, nodes, given)

    def _given(self, context: DraftContext) -> Tensor | None:
        """Return the place in the leaves' last axis of the token that is evidence, int64 [B]; None: there is none."""
        return _HeadRows(context.head).places(context.tokens[:, -1]) if self.num_evidence else None


class _HeadRows:
    """Maps between the last axis of the leaves and all tokens; the identity where there is no head."""

    def __init__(self, head: Head | None) -> None:
        self.head = head

    def tokens(self, rows: Tensor) -> Tensor:
        """Return the tokens of rows, int64 of any shape."""
        return rows if self.head is None else self.head.tokens_of(rows)

    def places(self, tokens: Tensor) -> Tensor:
        """Return the rows of tokens, int64 of any shape; -1 for a token outside of the draft vocabulary."""
        return tokens if self.head is None or self.head.index_by_token is None else self.head.index_by_token[tokens]

    def spread(self, probs: Tensor) -> Tensor:
        """Scatter probabilities of rows over all tokens: [..., rows] -> [..., V]."""
        return probs if self.head is None else self.head.spread(probs)

    def evidence(self, leaves: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return both results of `known_evidence` for tokens, int64 [B, n], under leaves [B, n, R, rows]."""
        return known_evidence(leaves, self.places(tokens))
