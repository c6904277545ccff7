"""Drafting can be captured in a CUDA graph: static shapes, no host synchronization, one device.

Fake tensors replace a GPU.  An operation whose shape or control flow depends on a tensor's value raises on them.  Fake
tensors on the device "meta" also raise when they are combined with a tensor that was made on the CPU.
"""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from mtpc.circuits import CircuitParams
from mtpc.parallel.beams import BeamTree
from mtpc.parallel.borrow import borrow_nodes
from mtpc.parallel.tree import grow_tree
from mtpc.target_head.shared import SharedHead
from mtpc.verify import verify_tree
from tests.oracles import circuit_ops
from tests.oracles.cases import Case, cast, sum_shapes

CASES = [
    Case(kind, window, 1 if kind == "ff" else 4, 9) for kind in ("ff", "cp", "hmm", "btree") for window in (1, 2, 7)
]
ROWS = 3
TREE = 8


def draft(case: Case, params: CircuitParams, first: torch.Tensor, temperature: torch.Tensor, noise: torch.Tensor):
    """All that a drafter runs for one draft, and trees: (sampled tokens, their conditionals, greedy tokens, ...)."""
    circuit = case.circuit
    conditioned = circuit_ops.condition(circuit, circuit_ops.temper(params, temperature), first)
    tokens = circuit_ops.sample(circuit, conditioned, noise)
    conditionals = circuit_ops.conditionals(circuit, conditioned, tokens)
    drafted = (
        tokens,
        conditionals,
        circuit_ops.greedy(circuit, params, first),
        circuit_ops.log_prob(circuit, params, tokens),
    )
    if case.window == 1:  # nothing is left to draft after the first token
        return drafted
    tree = borrow_nodes(grow_tree(circuit, params, first, TREE, case.window - 1), TREE // 2)
    target = conditionals[:, :1].exp().expand(-1, TREE + 1, -1)
    verdict = verify_tree(tree.tokens, tree.parents, target, noise[:, :1].expand(-1, TREE + 1))
    return (*drafted, *tree, *verdict)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_traces_with_fake_tensors(case: Case, dtype: torch.dtype, device: str) -> None:
    shapes = sum_shapes(case.kind, case.window, case.rank)
    with FakeTensorMode():
        params = CircuitParams(
            torch.empty(ROWS, case.window, case.rank, case.vocabulary, dtype=dtype, device=device),
            tuple(torch.empty(ROWS, *shape, dtype=dtype, device=device) for shape in shapes),
        )
        first = torch.empty(ROWS, dtype=torch.int64, device=device)
        temperature = torch.empty(ROWS, device=device)
        noise = torch.empty(ROWS, case.window, device=device)
        tokens, conditionals, greedy, _, *tree = draft(case, params, first, temperature, noise)
    assert tokens.shape == greedy.shape == (ROWS, case.window)
    assert conditionals.shape == (ROWS, case.window, case.vocabulary)
    assert all(tensor.shape[0] == ROWS and tensor.device.type == device for tensor in tree)
    assert tokens.device.type == conditionals.device.type == greedy.device.type == device


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_beams_and_the_windows_under_them_trace_with_fake_tensors(case: Case, device: str) -> None:
    shapes, beams = sum_shapes(case.kind, case.window, case.rank), 3
    with FakeTensorMode():
        circuit = case.circuit
        with torch.device(device):
            head = SharedHead(*(torch.empty(case.vocabulary, 5) for _ in range(2)))
            params = CircuitParams(
                torch.empty(ROWS * beams, case.window, case.rank, case.vocabulary),
                tuple(torch.empty(ROWS * beams, *shape) for shape in shapes),
            )
            growth = BeamTree.begin(torch.empty(ROWS, case.vocabulary), beams, head)
            growth = growth.with_level(torch.empty(ROWS, beams, case.vocabulary), beams, head)
            growth = growth.with_parallel_levels(circuit, params, head, case.window, beams, 2 * beams)
            tree = borrow_nodes(growth.tree(TREE), TREE // 2)
    assert all(tensor.shape[0] == ROWS and tensor.device.type == device for tensor in tree)


def test_fake_tensors_find_a_synchronisation() -> None:
    """The control: reading a value is refused."""
    with FakeTensorMode(), pytest.raises(torch._subclasses.fake_tensor.DataDependentOutputException):
        torch.empty(3).argmax().item()


def test_fake_tensors_find_a_tensor_on_another_device() -> None:
    """The control: a constant that was made on the CPU is refused."""
    with FakeTensorMode(), pytest.raises(RuntimeError, match="device"):
        torch.empty(3, 3, device="meta") + torch.arange(3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="captures a CUDA graph: needs a GPU")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_captured_graph_replays_new_values(case: Case) -> None:
    def inputs(seed: int) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        params = cast(case.params(ROWS, seed), torch.float32)
        return [
            torch.randint(case.vocabulary, (ROWS,), generator=generator),
            torch.rand(ROWS, generator=generator) + 0.5,
            torch.rand(ROWS, case.window, generator=generator),
            params.leaves,
            *params.sums,
        ]

    def run(
        first: torch.Tensor, temperature: torch.Tensor, noise: torch.Tensor, leaves: torch.Tensor, *sums: torch.Tensor
    ):
        return draft(case, CircuitParams(leaves, sums), first, temperature, noise)

    static = [tensor.cuda() for tensor in inputs(0)]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run(*static)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run(*static)
    for seed in (1, 2):
        for buffer, value in zip(static, inputs(seed), strict=True):
            buffer.copy_(value)
        graph.replay()
        for got, expected in zip(captured, run(*static), strict=True):
            torch.testing.assert_close(got, expected)
