"""Operations on whole windows of circuits, slow references: each holds all leaves, and combines the primitives.

`params` are those of B circuits; shapes are as in `mtpc.circuits.base`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from mtpc.circuits import Circuit, CircuitParams
from mtpc.circuits.btree import BinaryTree
from mtpc.circuits.params import normalize_log, token_evidence
from mtpc.draw import draw


def prefix_log_probs(circuit: Circuit, params: CircuitParams, x: Tensor) -> Tensor:
    """Compute log q(x_1..x_i) for i = 1..n: x int64 [B, n] -> [B, n]."""
    params = params.upcast()
    evidence = token_evidence(params.leaves, x)
    return torch.logsumexp(circuit.beliefs(params.sums, evidence) + evidence, -1)


def log_prob(circuit: Circuit, params: CircuitParams, x: Tensor) -> Tensor:
    """Compute log q(x_1..x_n): x int64 [B, n] -> [B]."""
    return prefix_log_probs(circuit, params, x)[:, -1]


def conditionals(circuit: Circuit, params: CircuitParams, x: Tensor) -> Tensor:
    """Compute log q(x_i = v | x_<i): x int64 [B, n] -> [B, n, V]; -inf after a prefix of probability zero."""
    params = params.upcast()
    weights = normalize_log(circuit.beliefs(params.sums, token_evidence(params.leaves, x)))
    return torch.logsumexp(weights[..., None] + params.leaves, 2)


def sample(circuit: Circuit, params: CircuitParams, noise: Tensor) -> Tensor:
    """Sample windows, each token from its exact conditional: uniforms [B, n] -> int64 [B, n]."""
    return _left_to_right(circuit, params, lambda probs, position: draw(probs, noise[:, position]))


def greedy(circuit: Circuit, params: CircuitParams, first: Tensor | None = None) -> Tensor:
    """Choose the argmax of each exact conditional from left to right, int64 [B, n]; ``first`` [B] fixes x_1."""
    return _left_to_right(circuit, params, lambda probs, _: probs.argmax(-1), first)


def _left_to_right(
    circuit: Circuit, params: CircuitParams, choose: Callable[[Tensor, int], Tensor], first: Tensor | None = None
) -> Tensor:
    params = params.upcast()
    state, tokens = circuit.start(params), []
    for position in range(circuit.window):
        if position == 0 and first is not None:
            token = first
        else:
            token = choose(circuit.conditional(state, params.leaves[:, position].exp()), position)
        tokens.append(token)
        if position + 1 < circuit.window:
            evidence = token_evidence(params.leaves[:, position : position + 1], token[:, None])
            state = circuit.advance(params.sums, position, state, evidence)
    return torch.stack(tokens, 1)


def temper(params: CircuitParams, temperature: Tensor) -> CircuitParams:
    """Raise every leaf and sum distribution to the power 1/T, T [B], and renormalize it."""
    params = params.upcast()

    def one(weights: Tensor) -> Tensor:
        scale = temperature.to(weights.dtype).view(-1, *[1] * (weights.ndim - 1))
        return torch.log_softmax(weights / scale, -1)

    return CircuitParams(one(params.leaves), tuple(one(weights) for weights in params.sums))


def condition(circuit: Circuit, params: CircuitParams, first: Tensor) -> CircuitParams:
    """Return the circuit of q(. | x_1 = first), of the same type: tokens int64 [B] of positive probability."""
    params = params.upcast()
    evidence = token_evidence(params.leaves[:, :1], first[:, None])[:, 0]  # [B, R]
    certain = torch.full_like(params.leaves[:, :1], -torch.inf)
    index = first[:, None, None, None].expand(-1, 1, params.leaves.shape[2], 1)
    certain = certain.scatter(3, index, 0.0)
    return CircuitParams(
        torch.cat([certain, params.leaves[:, 1:]], 1), _conditioned_sums(circuit, params.sums, evidence)
    )


def _conditioned_sums(circuit: Circuit, sums: tuple[Tensor, ...], evidence: Tensor) -> tuple[Tensor, ...]:
    if not sums:
        return sums
    root, *others = sums
    if isinstance(circuit, BinaryTree):  # reweight the nodes above the first leaf, from the bottom up
        rows = list(others[0].unbind(1))
        for step in reversed(circuit.paths[0][1:]):
            joint = rows[step.node - 1] + evidence[:, None]
            evidence = torch.logsumexp(joint, -1)
            rows[step.node - 1] = normalize_log(joint)
        others = [torch.stack(rows, 1) if rows else others[0]]
    return torch.log_softmax(root + evidence, -1), *others
