"""Small random circuits together with the table of all their windows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product

import torch
from torch import Tensor

from mtpc.circuits import Circuit, CircuitParams, build_circuit
from tests.oracles.enumeration import enumerate_windows
from tests.oracles.windows import WindowTable

KINDS = ("ff", "cp", "hmm", "btree")
_LARGEST_ENUMERATION = 50_000  # windows times latent assignments of one table
_SHARPNESS = 1.5  # standard deviation of the logits


@dataclass(frozen=True)
class Case:
    """A kind of circuit and its sizes; its parameters are a function of these alone."""

    kind: str
    window: int
    rank: int
    vocabulary: int

    def __str__(self) -> str:
        return f"{self.kind}-n{self.window}-r{self.rank}-v{self.vocabulary}"

    @property
    def circuit(self) -> Circuit:
        """The circuit under test."""
        return build_circuit(self.kind, self.window, self.rank)

    def latent_assignments(self) -> int:
        """Return the number of latent assignments that the reference implementation sums over."""
        latents = {"ff": 0, "cp": 1, "hmm": self.window, "btree": max(self.window - 1, 1)}[self.kind]
        return self.rank**latents

    def params(self, rows: int = 2, seed: int = 0) -> CircuitParams:
        """Random normalised float64 parameters of `rows` different circuits."""
        generator = torch.Generator().manual_seed(seed)
        shapes = ((self.window, self.rank, self.vocabulary), *sum_shapes(self.kind, self.window, self.rank))
        leaves, *sums = (
            (torch.randn(rows, *shape, generator=generator, dtype=torch.float64) * _SHARPNESS).log_softmax(-1)
            for shape in shapes
        )
        return CircuitParams(leaves, tuple(sums))

    def tables(self, rows: int = 2, seed: int = 0) -> list[WindowTable]:
        """Return the reference implementation's table of each row of `params`; cached."""
        return _cached_tables(self, rows, seed)

    def windows(self) -> Tensor:
        """All windows, int64 [V^n, n]."""
        return torch.tensor(list(product(range(self.vocabulary), repeat=self.window)))


def sum_shapes(kind: str, window: int, rank: int) -> tuple[tuple[int, ...], ...]:
    """Shapes of the sum weights, without the batch dimension, as the contract of `CircuitParams` lays them out."""
    return {
        "ff": (),
        "cp": ((rank,),),
        "hmm": ((rank,), (window - 1, rank, rank)),
        "btree": ((rank,), (max(window - 2, 0), rank, rank)),
    }[kind]


def enumerate_rows(kind: str, params: CircuitParams) -> list[WindowTable]:
    """Return the reference implementation's table of each row of any parameters."""
    leaves = params.leaves.double().exp().numpy()
    sums = [weights.double().exp().numpy() for weights in params.sums]
    return [WindowTable(enumerate_windows(kind, leaves[b], [w[b] for w in sums])) for b in range(leaves.shape[0])]


@cache
def _cached_tables(case: Case, rows: int, seed: int) -> list[WindowTable]:
    return enumerate_rows(case.kind, case.params(rows, seed))


def take_row(params: CircuitParams, row: int, copies: int = 1) -> CircuitParams:
    """`copies` rows that all are row `row` of the parameters (a view)."""
    return CircuitParams(
        params.leaves[row : row + 1].expand(copies, *params.leaves.shape[1:]),
        tuple(weights[row : row + 1].expand(copies, *weights.shape[1:]) for weights in params.sums),
    )


def cast(params: CircuitParams, dtype: torch.dtype) -> CircuitParams:
    """The same parameters in another precision."""
    return CircuitParams(params.leaves.to(dtype), tuple(weights.to(dtype) for weights in params.sums))


def all_cases() -> list[Case]:
    """V = 2..4, n = 1..6, every kind, ranks 1..3, as far as enumeration stays quick."""
    cases = [
        Case(kind, window, rank, vocabulary)
        for kind, window, rank, vocabulary in product(KINDS, range(1, 7), (1, 2, 3), (2, 3, 4))
        if kind != "ff" or rank == 1
    ]
    return [c for c in cases if c.vocabulary**c.window * c.latent_assignments() <= _LARGEST_ENUMERATION]


ALL_CASES = all_cases()


def cases_of(kind: str) -> list[Case]:
    """All of one kind."""
    return [case for case in ALL_CASES if case.kind == kind]


# One of each kind, large enough that no level of the tree and no step of the chain is missing.
ONE_OF_EACH = [Case(kind, 5, 1 if kind == "ff" else 3, 3) for kind in KINDS]
