"""Losses of mixtures of softmax distributions over a large vocabulary, without all logits in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mtpc.circuits import Circuit
from mtpc.circuits.params import normalize_log
from mtpc.lab.training.divergence import MIN_PROBABILITY

# Leaf probabilities that are in memory at once, on a CPU and on a GPU.
CPU_LEAVES, GPU_LEAVES = 1 << 24, 1 << 27


class MixtureLeaves(NamedTuple):
    """What the leaf logits of m starts are computed from: sum_t states_t matrix_t^T, plus components features.

    Attributes:
        states: Terms that all components of a position share, [m, n, f] each.
        matrices: What each of these is multiplied by, [rows, f].
        features: What the components' own terms are computed from, [m, n, k]. None: one component.
        components: What the features are multiplied by, [n, k, R, rows]. None with ``features``.
        log_weights: Added to the logits of each row, [rows], see `SampledHead`. None: nothing.
    """

    states: Sequence[Tensor]
    matrices: Sequence[Tensor]
    features: Tensor | None
    components: Tensor | None
    log_weights: Tensor | None


class TargetDistributions(NamedTuple):
    """The target's distributions of P positions, which several drafters share.

    Attributes:
        probs: float32 [P, rows].
        entropies: In nats, float32 [P].
    """

    probs: Tensor
    entropies: Tensor

    @classmethod
    def of(cls, logits: Tensor) -> TargetDistributions:
        """Return the distributions of logits, float32 [P, rows]."""
        log_p = logits.log_softmax(-1)
        probs = log_p.exp()
        return cls(probs, -(probs * log_p).sum(-1))


def mixture_losses(
    circuit: Circuit,
    leaves: MixtureLeaves,
    sums: tuple[Tensor, ...],
    text: Tensor,
    weights: Tensor,
    target: tuple[TargetDistributions, Tensor] | None,
) -> Tensor:
    """Sum the loss of each position of a circuit over m starts.

    Without ``target`` it is -log q(x_i | x_<i), the MTPC paper's equation 4. With it, it is KL(p || q) of every
    conditional, given the text before it (equation 5); q is bounded below by `MIN_PROBABILITY`.

    Its gradient is that of the losses' sum with these weights, as positions depend on each other. A caller must weight
    the result with the same weights, up to a common factor.

    Args:
        circuit: The structure, over n positions.
        leaves: What the leaves are computed from.
        sums: Unnormalized sum weights, [m, ...] each, see `Circuit.sum_shapes`.
        text: Rows of the tokens of the window, int64 [m, n].
        weights: Weight of each position, positive, [n].
        target: Distributions of the target, and which of them belongs to each position, int64 [m, n].

    Returns:
        Losses in nats, float32 [n].
    """
    tensors = (*leaves.states, *leaves.matrices, leaves.features, leaves.components, *sums)
    counts = len(leaves.states), len(sums)
    losses: Tensor = _MixtureLoss.apply(circuit, counts, leaves.log_weights, text, weights, target, *tensors)
    return losses


class _MixtureLoss(torch.autograd.Function):
    """Losses and gradients in one pass over the leaves, some starts at a time."""

    @staticmethod
    def forward(
        ctx: Any,
        circuit: Circuit,
        counts: tuple[int, int],
        log_weights: Tensor | None,
        text: Tensor,
        weights: Tensor,
        target: tuple[TargetDistributions, Tensor] | None,
        *tensors: Tensor | None,
    ) -> Tensor:
        """Return the losses [n], see `mixture_losses`; keep the gradients of all tensors that need one."""
        gradients = [
            None if tensor is None or not needs else torch.zeros_like(tensor, dtype=torch.float32)
            for tensor, needs in zip(tensors, ctx.needs_input_grad[6:], strict=True)
        ]
        total = weights.new_zeros(text.shape[1], dtype=torch.float32)
        rows = next(tensor for tensor in tensors[counts[0] :] if tensor is not None).shape[0]
        most = CPU_LEAVES if text.device.type == "cpu" else GPU_LEAVES
        size = max(1, most // (circuit.rank * rows * text.shape[1]))
        with torch.autocast(text.device.type, enabled=False):
            for first in range(0, len(text), size):
                chunk = _Chunk(circuit, counts, tensors, gradients, slice(first, first + size))
                total += chunk.run(log_weights, text[first : first + size], weights, target)
        ctx.kept = gradients
        ctx.save_for_backward(weights)
        return total

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the stored gradients by the common factor of the slopes [n] and the weights."""
        (weights,) = ctx.saved_tensors
        scale = (slope @ weights) / (weights @ weights)
        return (None,) * 6 + tuple(None if each is None else each * scale for each in ctx.kept)


class _Chunk:
    """The starts that are computed at once; ``run`` adds their gradients."""

    def __init__(
        self,
        circuit: Circuit,
        counts: tuple[int, int],
        tensors: Sequence[Tensor | None],
        gradients: Sequence[Tensor | None],
        starts: slice,
    ) -> None:
        self.circuit, self.starts = circuit, starts
        terms, _ = counts
        self.states, self.matrices = tensors[:terms], tensors[terms : 2 * terms]
        self.features, self.components = tensors[2 * terms : 2 * terms + 2]
        self.sums = [weights[starts] for weights in tensors[2 * terms + 2 :] if weights is not None]
        self.of_states, self.of_matrices = gradients[:terms], gradients[terms : 2 * terms]
        self.of_features, self.of_components = gradients[2 * terms : 2 * terms + 2]
        self.of_sums = gradients[2 * terms + 2 :]

    def run(
        self,
        log_weights: Tensor | None,
        text: Tensor,
        weights: Tensor,
        target: tuple[TargetDistributions, Tensor] | None,
    ) -> Tensor:
        """Return the summed losses [n] of these starts: text [s, n]."""
        phi = self._leaves(log_weights)  # [s, n, R, rows]
        index = text[:, :, None, None].expand(-1, -1, phi.shape[2], 1)
        evidence = phi.gather(3, index)[..., 0].clamp_min(torch.finfo(torch.float32).tiny).log()
        evidence.requires_grad_()
        sums = [weights.detach().requires_grad_() for weights in self.sums]
        with torch.enable_grad():
            normalized = tuple(weights.log_softmax(-1) for weights in sums)
            log_mixture = normalize_log(self.circuit.beliefs(normalized, evidence))  # [s, n, R]
            if target is None:
                each = -torch.logsumexp(log_mixture + evidence, -1)  # [s, n]
                objective, slope = (each * weights).sum(), None
            else:
                mixture = log_mixture.exp()
                each, slope, of_mixture = self._divergences(phi, mixture.detach(), weights, target)
                objective = (mixture * of_mixture).sum()
        given = [evidence, *sums]
        found = (
            torch.autograd.grad(objective, given, allow_unused=True) if objective.requires_grad else [None] * len(given)
        )
        of_evidence = torch.zeros_like(evidence) if found[0] is None else found[0]
        for gradient, one in zip(self.of_sums, found[1:], strict=True):
            if gradient is not None and one is not None:
                gradient[self.starts] = one
        # d objective / d logits = phi (w g - (w (phi g) + E)) + E 1[x], where g = d objective / d q and E is the
        # gradient of the evidence.
        if slope is None:
            phi.mul_(-of_evidence[..., None])
        else:
            constant = mixture.detach() * of_mixture + of_evidence
            phi.mul_(torch.addcmul(-constant[..., None], mixture.detach()[..., None], slope[:, :, None]))
        self._backward(phi.scatter_add_(3, index, of_evidence[..., None]))
        return each.detach().sum(0)

    def _leaves(self, log_weights: Tensor | None) -> Tensor:
        """Return the leaf probabilities, float32 [s, n, R, rows]."""
        terms = zip(self.states, self.matrices, strict=True)
        products = [
            (states[self.starts].to(matrix.dtype).contiguous() @ matrix.T).float()  # else the matrix is repeated
            for states, matrix in terms
            if states is not None and matrix is not None
        ]
        shared = products[0] if len(products) == 1 else torch.stack(products).sum(0)  # [s, n, rows]
        if log_weights is not None:
            shared += log_weights
        if self.components is None or self.features is None:
            return shared[:, :, None].softmax(-1)
        count, _, rank, rows = self.components.shape
        features = self.features[self.starts].to(self.components.dtype)
        logits = shared.new_empty(len(features), count, rank, rows)
        for position in range(count):
            own = features[:, position] @ self.components[position].flatten(1)  # [s, R rows]
            torch.add(own.view(-1, rank, rows), shared[:, position, None], out=logits[:, position])
        return logits.softmax(-1)

    def _divergences(
        self, phi: Tensor, mixture: Tensor, weights: Tensor, target: tuple[TargetDistributions, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return KL(p || q), [s, n], and the gradients of its weighted sum: of q [s, n, rows], of the mixture."""
        distributions, places = target
        of_starts = places[self.starts]
        p = distributions.probs[of_starts]  # [s, n, rows]
        q = (mixture[:, :, None] @ phi)[:, :, 0].clamp_min_(MIN_PROBABILITY)
        slope = torch.div(p, q).mul_(-weights[:, None])
        each = -distributions.entropies[of_starts] - p.mul_(q.log_()).sum(-1)
        return each, slope, (slope[:, :, None] @ phi.transpose(2, 3))[:, :, 0]

    def _backward(self, slope: Tensor) -> None:
        """Add the gradients of the factors: slope [s, n, R, rows] of the logits."""
        shared = slope[:, :, 0] if slope.shape[2] == 1 else slope.sum(2)  # [s, n, rows]
        for number, (states, matrix) in enumerate(zip(self.states, self.matrices, strict=True)):
            assert states is not None and matrix is not None
            typed, of_states, of_matrix = shared.to(matrix.dtype), self.of_states[number], self.of_matrices[number]
            if of_states is not None:
                of_states[self.starts] = (typed @ matrix).float()
            if of_matrix is not None:
                of_matrix += (typed.flatten(0, 1).T @ states[self.starts].to(matrix.dtype).flatten(0, 1)).float()
        if self.components is None or self.features is None:
            return
        for position, components in enumerate(self.components):
            own = slope[:, position].flatten(1).to(self.components.dtype)  # [s, R rows]
            if self.of_features is not None:
                self.of_features[self.starts, position] = (own @ components.flatten(1).T).float()
            if self.of_components is not None:
                features = self.features[self.starts, position].to(self.components.dtype)
                self.of_components[position].view(len(components), -1).add_(features.T @ own)
