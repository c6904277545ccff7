"""Trees of both parts of a drafter: beams of the autoregressive part, and under each of them what its window goes on with.

A level of the tree is drafted from as many prefixes as there are beams, the most probable of the level before (EAGLE-2,
Li et al. 2024); under the beams of the last serial level grow the windows, whose positions offer a few candidates each
(Gumiho paper, section 3.3).  Of all that is found the most probable prefixes make the tree: as the score of a prefix is
its probability under the drafter, they are the nodes of the largest expected number of accepted drafts.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import torch
from torch import Tensor

from mtpc.circuits import Circuit, CircuitParams
from mtpc.circuits.base import State
from mtpc.circuits.params import normalize_log, token_evidence
from mtpc.draft import TreeDraft
from mtpc.errors import MTPCError
from mtpc.parallel.tree import Level, best_nodes
from mtpc.target_head.shared import Head

CANDIDATES = (
    64  # tokens that a position of a window offers, its most probable ones whatever comes before (the paper: 35)
)


class Beams(NamedTuple):
    """The k prefixes of one level that drafting goes on from, [B, k] each.

    tokens: int64, the last of each.  parents: int64, which beam of the level before each goes on from.  places: int64,
    of each among the nodes of its level.  scores: log q of the prefix.
    """

    tokens: Tensor
    parents: Tensor
    places: Tensor
    scores: Tensor


class BeamTree(NamedTuple):
    """The levels that there are, and the beams of the last."""

    levels: tuple[Level, ...]
    beams: Beams

    @classmethod
    def begin(cls, log_q: Tensor, width: int, head: Head) -> Self:
        """The first level, the `width` most probable tokens; all are beams.  log_q: of the head's rows, [B, R]."""
        score = log_q.new_zeros(len(log_q), 1)
        place = score.long()
        return cls((), Beams(place, place, place, score)).with_level(log_q[:, None], width, head)

    def with_level(self, log_q: Tensor, width: int, head: Head) -> Self:
        """One more level: the `width` most probable tokens after each beam; as many of all these are its beams.

        log_q: of the head's rows after each beam, [B, k, R].
        """
        found, rows = log_q.topk(min(width, log_q.shape[2]))  # [B, k, w]
        before = self.beams.scores[..., None]
        # No rounding may make a child more probable than its parent: the order by score is to be that of a tree.
        scores = (before + found).minimum(before).flatten(1)
        parents = self.beams.places[..., None].expand_as(rows).flatten(1)
        level = Level(head.tokens_of(rows).flatten(1), parents, scores)
        best, places = scores.topk(min(width, scores.shape[1]))
        beams = Beams(level.tokens.gather(1, places), places // rows.shape[2], places, best)
        return self._replace(levels=(*self.levels, level), beams=beams)

    def with_parallel_levels(
        self,
        circuit: Circuit,
        params: CircuitParams,
        head: Head | None,
        depth: int,
        children: int,
        width: int,
        given: Tensor | None = None,
    ) -> Self:
        """Levels of the windows of all beams, `depth` of them.

        params: of B k circuits, one under each beam, over the head's rows, or all tokens where it is None.  children:
        of a node at most, out of the `CANDIDATES` that a position offers.  width: nodes of a level, over all beams,
        that are kept.  given: int64 [B k], the first token of the circuits' window where it is evidence, or None.

        Within these bounds the nodes are the most probable ones, and each score is the exact probability of its prefix.
        """
        beams = self.beams.tokens.shape[1]
        few, state, rows = _candidates(circuit, params.upcast(), CANDIDATES, given)
        start = 0 if given is None else 1  # of the positions that are drafted
        tokens = rows if head is None else head.tokens_of(rows)
        first = torch.arange(len(tokens), device=tokens.device).view(-1, beams)  # [B, k], the rows of each request
        owners, places, scores, levels = first, self.beams.places, self.beams.scores, list(self.levels)
        for position in range(start, start + depth):
            owner = owners.flatten()  # [B P], whose circuit each prefix is under
            belief = torch.softmax(state[-1], -1).nan_to_num(0.0)  # [B P, R]
            conditionals = (belief[:, None] @ few.leaves[owner, position].exp())[:, 0]  # [B P, c]
            best, choices = conditionals.topk(min(children, conditionals.shape[1]))  # [B P, children]
            joint = (scores[..., None] + best.log().unflatten(0, scores.shape)).minimum(scores[..., None])
            scores, found = joint.flatten(1).topk(min(width, joint.shape[1] * joint.shape[2]))
            prefix = found // joint.shape[2]  # [B, P'], of the level above
            choice = choices.view(len(joint), -1).gather(1, found)  # which candidate
            owners = owners.gather(1, prefix)
            levels.append(Level(tokens[owners, position, choice], places.gather(1, prefix), scores))
            places = torch.arange(scores.shape[1], device=tokens.device).expand_as(scores)
            if position + 1 < start + depth:
                state = _advanced(circuit, few, position, state, owners, prefix, choice)
        return self._replace(levels=tuple(levels))

    def tree(self, size: int) -> TreeDraft:
        """The `size` most probable nodes.

        Errors: `MTPCError` where there are not as many.
        """
        room = sum(level.tokens.shape[1] for level in self.levels)
        if size > room:
            raise MTPCError(f"a draft tree of {size} nodes does not fit: depth and children leave room for {room}.")
        return best_nodes(self.levels, size)


def _candidates(
    circuit: Circuit, params: CircuitParams, count: int, given: Tensor | None
) -> tuple[CircuitParams, State, Tensor]:
    """The circuit over the `count` most probable tokens of each position alone, its state, and these tokens' rows.

    Leaves [B, n, R, count], the state of the first position that is drafted, [B, R] each, and int64 [B, n, count].  The
    leaves of the others are left out, not summed up: what is kept has the probability that it has in the whole.
    """
    leaves, state = params.leaves, circuit.start(params)
    evidence = leaves.new_zeros(leaves.shape[:3])
    if given is not None:
        evidence[:, :1] = token_evidence(leaves[:, :1], given[:, None])
        state = circuit.advance(params.sums, 0, state, evidence[:, :1])
    weights = normalize_log(circuit.beliefs(params.sums, evidence)).exp()  # [B, n, R]
    rows = (weights[:, :, None] @ leaves.exp())[:, :, 0].topk(min(count, leaves.shape[3])).indices
    few = leaves.gather(3, rows[:, :, None].expand(-1, -1, leaves.shape[2], -1))
    return params._replace(leaves=few), tuple(each[:, 0] for each in state), rows


def _advanced(
    circuit: Circuit, few: CircuitParams, position: int, state: State, owners: Tensor, prefix: Tensor, choice: Tensor
) -> State:
    """The states after the nodes of a level, each a row of its own: [B P', R] each.

    owners, prefix, choice: int64 [B, P'], of each node its circuit, its place in the level above, and its candidate.
    """
    above = len(state[0]) // len(prefix)
    rows = (prefix + above * torch.arange(len(prefix), device=prefix.device)[:, None]).flatten()
    owner = owners.flatten()
    sums = tuple(weights[owner] for weights in few.sums)
    leaves = few.leaves[owner, position : position + 1]  # [B P', 1, R, c]
    evidence = token_evidence(leaves, choice.flatten()[:, None])
    after = circuit.advance(sums, position, tuple(each[rows][:, None] for each in state), evidence)
    return tuple(each[:, 0] for each in after)
