"""Kernels that build draft trees for SGLang's verification, and greedy verification.

A tree has N nodes, at least 2.  Node 0 is the bonus token, and parents come before their children.  ``retrieve_index``
[B, N] numbers the nodes of all requests.  ``retrieve_next_token`` [B, N] is each node's first child, and
``retrieve_next_sibling`` [B, N] the next child of its parent; -1 for none.  Names and arguments are those of SGLang's
kernels, which write into their arguments.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

FULL_MASK, QUERIES_ONLY = 0, 1  # SGLang's tree mask modes: over all positions, or over the tree


class Nodes(NamedTuple):
    """Output tensors for nodes, int64, each [B, N] or flat."""

    positions: Tensor
    numbers: Tensor
    next_token: Tensor
    next_sibling: Tensor

    def write(self, parents: Tensor, depths: Tensor, seq_lens: Tensor) -> None:
        """Write the nodes' data, from parents [B, N] (-1 for none), depths [B, N] and sequence lengths [B]."""
        count = parents.numel()
        index = torch.arange(parents.shape[1])
        child = parents[:, None, :] == index[:, None]  # [B, parent, child]
        sibling = (parents[:, :, None] == parents[:, None, :]) & (parents >= 0)[:, :, None]
        later = sibling & (index > index[:, None])  # [B, node, later sibling]
        self.positions.view(-1)[:count] = (depths + seq_lens[:, None]).flatten()
        self.numbers.view(-1)[:count] = torch.arange(count)
        self.next_token.view(-1)[:count] = _first(child).flatten()
        self.next_sibling.view(-1)[:count] = _first(later).flatten()


def _first(found: Tensor) -> Tensor:
    """Return the index of the first True in the last dimension, -1 for none."""
    if not found.shape[-1]:
        return torch.full(found.shape[:-1], -1)
    return torch.where(found.any(-1), found.int().argmax(-1), -1)


def build_tree_kernel_efficient_cpu(
    parent_list: Tensor,
    selected_index: Tensor,
    seq_lens: Tensor,
    tree_mask: Tensor,
    positions: Tensor,
    retrieve_index: Tensor,
    retrieve_next_token: Tensor,
    retrieve_next_sibling: Tensor,
    topk: int,
    depth: int,
    draft_token_num: int,
    tree_mask_mode: int,
) -> None:
    """Compute mask, positions and links of trees from EAGLE's description of them.

    The value of a node divided by topk identifies its parent: 0 is the root, otherwise it is an index into parent_list,
    which holds the parent's value.  A node whose parent is not in the tree has no links; it attends to itself and the
    root.

    Args:
        parent_list: Values of parents, [B, ...].
        selected_index: Value of each node but the root, [B, N - 1].
        seq_lens: Sequence lengths, [B].
        tree_mask: Output, bool, flat: [N, N] for each request, or [N, length + N] where all positions before the tree
            are visible.
        positions: Output, position of each node.
        retrieve_index: Output, see above, like the next two.
        retrieve_next_token: Output.
        retrieve_next_sibling: Output.
        topk: Most children of a node.
        depth: Not used.
        draft_token_num: Not used.
        tree_mask_mode: Form of the mask.

    Raises:
        NotImplementedError: The form of the mask is unknown.
    """
    parents = _parents(parent_list, selected_index, topk)
    sees = _ancestors(parents)  # [B, N, N]
    depths = sees[:, :, 1:].sum(2)
    nodes = Nodes(positions, retrieve_index, retrieve_next_token, retrieve_next_sibling)
    nodes.write(parents, depths, seq_lens)
    sees[:, :, 0] = True
    if tree_mask_mode == QUERIES_ONLY:
        tree_mask[: sees.numel()] = sees.flatten()
    elif tree_mask_mode == FULL_MASK:
        rows = [F.pad(one, (length, 0), value=True) for one, length in zip(sees, seq_lens.tolist(), strict=True)]
        flat = torch.cat([row.flatten() for row in rows])
        tree_mask[: len(flat)] = flat
    else:
        raise NotImplementedError(f"The CPU shim does not support tree mask mode {tree_mask_mode}.")


def _parents(parent_list: Tensor, selected_index: Tensor, topk: int) -> Tensor:
    """Return the parent of each node, [B, N]; -1 for the root and for nodes whose parent is not in the tree."""
    after = selected_index.long() // topk  # [B, N - 1]
    named = F.pad(parent_list.long().view(len(after), -1), (0, 1), value=-1)
    value = named.gather(1, after.clamp(max=named.shape[1] - 1))
    found = _first(selected_index.long()[:, None, :] == value[:, :, None])
    parents = torch.where(after == 0, 0, torch.where(found >= 0, found + 1, -1))
    return F.pad(parents, (1, 0), value=-1)


def _ancestors(parents: Tensor) -> Tensor:
    """Return whether a node's ancestors include another one, itself included: bool [B, N, N]."""
    count = parents.shape[1]
    up = (parents[:, :, None] == torch.arange(count)).float() + torch.eye(count)
    for _ in range((count - 1).bit_length()):  # each round doubles the distance
        up = (up @ up).clamp(max=1)
    return up > 0


def reconstruct_indices_from_tree_mask(
    tree_mask: Tensor,
    verified_seq_len: Tensor,
    positions: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    batch_size: int,
    draft_token_num: int,
) -> None:
    """Compute positions and links of trees from their masks, bool, flat [B, N, N]."""
    numbers = torch.arange(draft_token_num)
    mask = tree_mask.flatten()[: batch_size * draft_token_num**2].view(batch_size, draft_token_num, draft_token_num)
    above = mask.bool() & (numbers < numbers[:, None])
    parents = torch.where(above, numbers, -1).amax(2)
    nodes = Nodes(positions, retrive_index, retrive_next_token, retrive_next_sibling)
    nodes.write(parents, above.sum(2), verified_seq_len)


def verify_tree_greedy_cpu(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    target_predict: Tensor,
) -> None:
    """Verify greedily: walk down each tree while a child is the target's next token.

    Args:
        predicts: Output, the target's token at each accepted node, [B * N].
        accept_index: Output, numbers of the accepted nodes from the root on, [B, steps + 1].
        accept_token_num: Output, accepted nodes without the root, [B].
        candidates: Tokens of the nodes, [B, N].
        retrive_index: Number of each node, [B, N].
        retrive_next_token: First child of each node, [B, N].
        retrive_next_sibling: Next sibling of each node, [B, N].
        target_predict: The target's next token after each node, [B, N].
    """
    wanted = target_predict.flatten().tolist()
    trees = (candidates, retrive_index, retrive_next_token, retrive_next_sibling)
    for row, (tokens, numbers, children, siblings) in enumerate(zip(*(t.tolist() for t in trees), strict=True)):
        path, node = [numbers[0]], 0
        while len(path) < accept_index.shape[1]:
            node = children[node]
            while node != -1 and tokens[node] != wanted[path[-1]]:
                node = siblings[node]
            if node == -1:
                break
            path.append(numbers[node])
        reached = torch.tensor(path)
        accept_index[row, : len(path)] = reached.to(accept_index.dtype)
        accept_token_num[row] = len(path) - 1
        predicts[reached] = target_predict.flatten()[reached].to(predicts.dtype)
