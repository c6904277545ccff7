"""Draft trees of both parts: beams of the autoregressive part, then the parallel part's continuations of each beam.

Each level is drafted from the most probable prefixes of the level before, its beams (EAGLE-2, Li et al. 2024).
Under the beams of the last autoregressive level the parallel part adds its positions, with a few candidates each
(Gumiho paper, arXiv 2503.10135, section 3.3).
The most probable prefixes of all levels make the tree. A prefix's score is its probability under the drafter, so these
nodes have the largest expected number of accepted draft tokens.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import torch
from torch import Tensor

from mtpc.circuits import Circuit, CircuitParams
from mtpc.circuits.base import State
from mtpc.circuits.params import known_evidence, normalize_log, token_evidence
from mtpc.draft import TreeDraft
from mtpc.errors import MTPCError
from mtpc.parallel.tree import Level, best_nodes
from mtpc.target_head.shared import Head

CANDIDATES = 64  # most probable tokens of a position, by its marginal distribution (the Gumiho paper uses 35)


class Beams(NamedTuple):
    """The k prefixes of one level that drafting continues from.

    Attributes:
        tokens: int64 [B, k], the last token of each prefix.
        parents: int64 [B, k], the beam of the level before that each continues.
        nodes: int64 [B, k], the index of each among the nodes of its level.
        scores: [B, k], log q of each prefix.
    """

    tokens: Tensor
    parents: Tensor
    nodes: Tensor
    scores: Tensor


class BeamTree(NamedTuple):
    """A tree that grows level by level; immutable, each method returns a new one.

    Call `begin`, then `with_level` for each further autoregressive draft step, then `with_parallel_levels` at most
    once, then `tree`.

    Attributes:
        levels: Candidates of each depth.
        beams: The prefixes of the last autoregressive level that drafting continues from.
    """

    levels: tuple[Level, ...]
    beams: Beams

    @classmethod
    def begin(cls, log_q: Tensor, width: int, head: Head) -> Self:
        """Return the first level: the ``width`` most probable tokens, all of them beams.

        Args:
            log_q: Log-probabilities of the head's rows, [B, R].
            width: Nodes of the level.
            head: The output head, which maps its rows to tokens.
        """
        score = log_q.new_zeros(len(log_q), 1)
        node = score.long()
        return cls((), Beams(node, node, node, score)).with_level(log_q[:, None], width, head)

    def with_level(self, log_q: Tensor, width: int, head: Head) -> Self:
        """Add a level of the ``width`` most probable tokens after each beam.

        The ``width`` most probable nodes of the level are the new beams.

        Args:
            log_q: Log-probabilities of the head's rows after each beam, [B, k, R].
            width: Children of each beam, and number of new beams.
            head: The output head, which maps its rows to tokens.
        """
        found, rows = log_q.topk(min(width, log_q.shape[2]))  # [B, k, w]
        before = self.beams.scores[..., None]
        # Rounding must not make a child more probable than its parent: parents have to come first by score.
        scores = (before + found).minimum(before).flatten(1)
        parents = self.beams.nodes[..., None].expand_as(rows).flatten(1)
        level = Level(head.tokens_of(rows).flatten(1), parents, scores)
        best, nodes = scores.topk(min(width, scores.shape[1]))
        beams = Beams(level.tokens.gather(1, nodes), nodes // rows.shape[2], nodes, best)
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
        """Add the parallel part's levels under all beams.

        Within the limits below the nodes are the most probable ones, and each score is the exact probability of its
        prefix.

        Args:
            circuit: Structure of the parallel part's circuits.
            params: Of B k circuits, one per beam, over the head's rows, or over all tokens where ``head`` is None.
            head: The output head, which maps its rows to tokens.
            depth: Levels to add.
            children: Most children of a node, out of the `CANDIDATES` of its position.
            width: Nodes that are kept of each level, over all beams of a request.
            given: int64 [B k], the first token of each circuit's window where it is evidence, as a row of the head, -1
                where it is in none; or None.
        """
        beams = self.beams.tokens.shape[1]
        few, state, rows = _candidates(circuit, params.upcast(), CANDIDATES, given)
        start = 0 if given is None else 1  # first position that is drafted
        tokens = rows if head is None else head.tokens_of(rows)
        first = torch.arange(len(tokens), device=tokens.device).view(-1, beams)  # [B, k], the circuits of each request
        owners, nodes, scores, levels = first, self.beams.nodes, self.beams.scores, list(self.levels)
        for position in range(start, start + depth):
            owner = owners.flatten()  # [B P], the circuit of each prefix
            belief = torch.softmax(state[-1], -1).nan_to_num(0.0)  # [B P, R]
            conditionals = (belief[:, None] @ few.leaves[owner, position].exp())[:, 0]  # [B P, c]
            best, choices = conditionals.topk(min(children, conditionals.shape[1]))  # [B P, children]
            joint = (scores[..., None] + best.log().unflatten(0, scores.shape)).minimum(scores[..., None])
            scores, found = joint.flatten(1).topk(min(width, joint.shape[1] * joint.shape[2]))
            prefix = found // joint.shape[2]  # [B, P'], node of the level above
            choice = choices.view(len(joint), -1).gather(1, found)  # which candidate
            owners = owners.gather(1, prefix)
            levels.append(Level(tokens[owners, position, choice], nodes.gather(1, prefix), scores))
            nodes = torch.arange(scores.shape[1], device=tokens.device).expand_as(scores)
            if position + 1 < start + depth:
                state = _states_after(circuit, few, position, state, owners, prefix, choice)
        return self._replace(levels=tuple(levels))

    def tree(self, size: int) -> TreeDraft:
        """Return the tree of the ``size`` most probable nodes.

        Raises:
            MTPCError: Where the levels have fewer nodes.
        """
        room = sum(level.tokens.shape[1] for level in self.levels)
        if size > room:
            raise MTPCError(f"a draft tree of {size} nodes does not fit: depth and children leave room for {room}.")
        return best_nodes(self.levels, size)


def _candidates(
    circuit: Circuit, params: CircuitParams, count: int, given: Tensor | None
) -> tuple[CircuitParams, State, Tensor]:
    """Restrict a circuit to the ``count`` most probable tokens of each position.

    Other leaves are dropped, not summed up, so each remaining token keeps its probability.
    Returns parameters with leaves [B, n, R, count], the state at the first drafted position ([B, R] each), and the rows
    of the tokens, int64 [B, n, count].
    """
    leaves, state = params.leaves, circuit.start(params)
    evidence = leaves.new_zeros(leaves.shape[:3])
    if given is not None:
        evidence[:, :1] = known_evidence(leaves[:, :1], given[:, None])[0]
        state = circuit.advance(params.sums, 0, state, evidence[:, :1])
    weights = normalize_log(circuit.beliefs(params.sums, evidence)).exp()  # [B, n, R]
    rows = (weights[:, :, None] @ leaves.exp())[:, :, 0].topk(min(count, leaves.shape[3])).indices
    few = leaves.gather(3, rows[:, :, None].expand(-1, -1, leaves.shape[2], -1))
    return params._replace(leaves=few), tuple(each[:, 0] for each in state), rows


def _states_after(
    circuit: Circuit, few: CircuitParams, position: int, state: State, owners: Tensor, prefix: Tensor, choice: Tensor
) -> State:
    """Return the states after the nodes of a level, one row per node: [B P', R] each.

    ``owners``, ``prefix`` and ``choice`` are int64 [B, P']: each node's circuit, its parent in the level above, and its
    candidate.
    """
    above = len(state[0]) // len(prefix)
    rows = (prefix + above * torch.arange(len(prefix), device=prefix.device)[:, None]).flatten()
    owner = owners.flatten()
    sums = tuple(weights[owner] for weights in few.sums)
    leaves = few.leaves[owner, position : position + 1]  # [B P', 1, R, c]
    evidence = token_evidence(leaves, choice.flatten()[:, None])
    after = circuit.advance(sums, position, tuple(each[rows][:, None] for each in state), evidence)
    return tuple(each[:, 0] for each in after)
