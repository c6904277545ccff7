"""SGLang's tree builder, given our links, rebuilds the drafts' tree; it is read off what was built."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from sglang.kernels.ops.speculative import spec_tree
from sglang.srt.speculative.eagle_utils import TreeMaskMode, build_tree_kernel_efficient

from mtpc.draft import TreeDraft
from mtpc.parallel.borrow import borrow_nodes
from sglang_mtpc.links import NO_PARENT, TreeLinks, chain_links, parents_of, tree_links
from sglang_mtpc.shape import DraftShape
from tests.support.cuda_on_host import compile_builder

LENGTHS = torch.tensor([5, 17, 1])


@pytest.fixture(scope="module")
def on_host(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., None] | None:
    """SGLang's CUDA kernel."""
    return compile_builder(tmp_path_factory.mktemp("kernel"))


@pytest.fixture(autouse=True, params=["on a CPU", "CUDA"])
def builder(
    request: pytest.FixtureRequest, on_host: Callable[..., None] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What SGLang builds trees with."""
    if request.param == "CUDA":
        if on_host is None:
            pytest.skip("no source of the kernel, or no compiler")
        monkeypatch.setattr(spec_tree, "sgl_build_tree_kernel_efficient_cpu", on_host)


def random_trees(rows: int, nodes: int, children: int, seed: int = 0) -> torch.Tensor:
    """Parents of trees with at most `children` children a node."""
    generator = torch.Generator().manual_seed(seed)
    parents = torch.empty(rows, nodes, dtype=torch.int64)
    for row in parents:
        room = {-1: children}
        for node in range(nodes):
            choices = [parent for parent, left in room.items() if left]
            parent = choices[int(torch.randint(len(choices), (), generator=generator))]
            room[parent] -= 1
            room[node] = children
            row[node] = parent
    return parents


def built(links: TreeLinks, tokens: torch.Tensor, children: int) -> tuple[torch.Tensor, ...]:
    """Mask [B, n, n], positions [B, n], next tokens and next siblings [B, n], with the root as row 0."""
    rows, nodes = tokens.shape
    mask, positions, index, child, sibling, drafts = build_tree_kernel_efficient(
        torch.full((rows,), 7), links.parents, links.selected, tokens, LENGTHS[:rows], int(LENGTHS[:rows].sum()),
        children, nodes, nodes + 1, TreeMaskMode.QLEN_ONLY,
    )  # fmt: skip
    assert torch.equal(index.flatten(), torch.arange(rows * (nodes + 1)))
    assert torch.equal(drafts.view(rows, -1), torch.nn.functional.pad(tokens, (1, 0), value=7))
    return mask.view(rows, nodes + 1, -1), positions.view(rows, -1), child, sibling


def parents_from(child: torch.Tensor, sibling: torch.Tensor) -> list[list[int]]:
    """The tree that the links describe, in our numbers."""
    found = [[-2] * (child.shape[1] - 1) for _ in child]
    for row, (children, siblings) in enumerate(zip(child.tolist(), sibling.tolist(), strict=True)):
        for parent, node in enumerate(children):
            while node != -1:
                found[row][node - 1] = parent - 1
                node = siblings[node]
    return found


def ancestors(parents: list[int], node: int) -> set[int]:
    """A node, the nodes above it and the root, with the root as 0."""
    return {0} if node < 0 else {node + 1} | ancestors(parents, parents[node])


@pytest.mark.parametrize(("nodes", "children"), [(1, 2), (6, 2), (15, 2), (15, 4), (31, 3)])
def test_trees(nodes: int, children: int) -> None:
    parents = random_trees(3, nodes, children)
    links = tree_links(parents, children)
    assert links.parents.shape == (3, children * (nodes - 1) + 1)  # what the CUDA kernel insists on
    assert links.selected.is_contiguous()
    assert links.parents.is_contiguous()
    mask, positions, child, sibling = built(links, torch.arange(3 * nodes).view(3, nodes), children)
    assert parents_from(child, sibling) == parents.tolist()
    assert torch.equal(parents_of(child, sibling), parents)
    for row, tree in enumerate(parents.tolist()):
        seen = [ancestors(tree, node) for node in range(-1, nodes)]
        assert [set(line.nonzero().flatten().tolist()) for line in mask[row]] == seen
        assert (positions[row] - LENGTHS[row]).tolist() == [len(path) - 1 for path in seen]


def test_a_path_borrows_in_addition_to_children_of_its_own() -> None:
    """Where fewer can be borrowed than asked for, a path may go on with all of its children and a borrowed node."""
    parents = torch.tensor([[-1, -1, 0, 1, 1, 0]])
    tree = borrow_nodes(TreeDraft(torch.arange(6)[None], parents, -torch.arange(1.0, 7.0)[None]), 3)
    assert tree.parents.tolist() == [[-1, -1, 0, 1, 1, 1]]
    most = DraftShape(3, 2, 6, borrowed=3).most_children
    _, _, child, sibling = built(tree_links(tree.parents, most), tree.tokens, most)
    assert parents_from(child, sibling) == tree.parents.tolist()


@pytest.mark.parametrize("nodes", [1, 2, 7])
def test_chains(nodes: int) -> None:
    links = chain_links(3, nodes, torch.device("cpu"))
    mask, positions, child, sibling = built(links, torch.arange(3 * nodes).view(3, nodes), 1)
    assert parents_from(child, sibling) == [list(range(-1, nodes - 1))] * 3
    assert parents_of(child, sibling).tolist() == [list(range(-1, nodes - 1))] * 3
    assert torch.equal(mask[0], torch.ones(nodes + 1, nodes + 1).tril().bool())
    assert torch.equal(positions, LENGTHS[:, None] + torch.arange(nodes + 1))


def test_links_in_any_order_and_nodes_that_nobody_follows() -> None:
    # root -> 3, then 1 (its later sibling), then 2; 3 -> 5; 4 was left without a parent, and 6 is its child
    child = torch.tensor([[3, -1, -1, 5, 6, -1, -1]])
    sibling = torch.tensor([[-1, 2, -1, 1, -1, -1, -1]])
    assert parents_of(child, sibling).tolist() == [[-1, -1, -1, NO_PARENT, 2, 3]]
