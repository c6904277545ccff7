"""Circuits: tractable joint distributions over a window of future tokens (MTPC paper, section 3)."""

from __future__ import annotations

from mtpc.circuits.base import Circuit
from mtpc.circuits.btree import BinaryTree
from mtpc.circuits.cp import CanonicalPolyadic
from mtpc.circuits.ff import FullyFactorized
from mtpc.circuits.hmm import HiddenMarkov
from mtpc.circuits.params import CircuitParams
from mtpc.errors import MTPCError

CIRCUITS: dict[str, type[Circuit]] = {
    circuit.kind: circuit for circuit in (FullyFactorized, CanonicalPolyadic, HiddenMarkov, BinaryTree)
}

__all__ = ["CIRCUITS", "Circuit", "CircuitParams", "allowed_rank", "build_circuit"]


def allowed_rank(kind: str, rank: int) -> int:
    """Return the largest rank up to ``rank`` that a circuit type allows.

    Args:
        kind: "ff", "cp", "hmm" or "btree".
        rank: R, the components per position that are wanted.

    Returns:
        ``rank``, or the type's maximum (1 for "ff").
    """
    most = CIRCUITS[kind].max_rank
    return rank if most is None else min(rank, most)


def build_circuit(kind: str, window: int, rank: int) -> Circuit:
    """Build a circuit by its name.

    Args:
        kind: "ff", "cp", "hmm" or "btree".
        window: n, the tokens that it is a distribution over.
        rank: R, components per position.

    Returns:
        The circuit, without parameters.

    Raises:
        MTPCError: For an unknown name, or a window or rank that is not positive.
    """
    if kind not in CIRCUITS:
        raise MTPCError(f"unknown circuit {kind!r}; the circuits are {', '.join(CIRCUITS)}.")
    if window < 1 or rank < 1:
        raise MTPCError(f"a circuit needs a window and a rank of at least 1, not window {window} and rank {rank}.")
    return CIRCUITS[kind](window, rank)
