"""Trees of drafts as SGLang's verification wants them, and greedy verification along one.

A tree has N nodes, at least 2; node 0 is the pending token and parents come before their children.
``retrieve_index`` [B, N] numbers the nodes of all requests, ``retrieve_next_token`` [B, N] is each node's first child
and ``retrieve_next_sibling`` [B, N] the next child of its parent, both -1 where there is none.  Names and arguments
are those of SGLang's kernels, which write into what they are given.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

FULL_MASK, QUERIES_ONLY = 0, 1  # forms of the mask: over the whole text, or over the tree


class Nodes(NamedTuple):
    """Where results about nodes go: int64, each [B, N] or the same numbers in one row."""

    positions: Tensor
    numbers: Tensor
    next_token: Tensor
    next_sibling: Tensor

    def write(self, parents: Tensor, depths: Tensor, seq_lens: Tensor) -> None:
        """Fill from parents [B, N], -1 for none, and depths [B, N], for texts of seq_lens [B] tokens."""
        count = parents.numel()
        places = torch.arange(parents.shape[1])
        child = parents[:, None, :] == places[:, None]  # [B, parent, child]
        sibling = (parents[:, :, None] == parents[:, None, :]) & (parents >= 0)[:, :, None]
        later = sibling & (places > places[:, None])  # [B, node, later sibling]
        self.positions.view(-1)[:count] = (depths + seq_lens[:, None]).flatten()
        self.numbers.view(-1)[:count] = torch.arange(count)
        self.next_token.view(-1)[:count] = _first(child).flatten()
        self.next_sibling.view(-1)[:count] = _first(later).flatten()


def _first(found: Tensor) -> Tensor:
    """Index of the first True in the last dimension, -1 where there is none."""
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
    """Mask, positions and links of trees described in EAGLE's way.

    selected_index: [B, N - 1], a value for each node but the root.  The value divided by topk says after which draft
    the node comes: 0 for the root, else an index into parent_list [B, ...], which holds the value of that draft.
    A node whose parent is no node of the tree has no links and sees itself and the root.
    tree_mask: bool, flat: for each request [N, N], or [N, length + N] with everything before the tree visible.

    Errors: `NotImplementedError` for a mask of another form.
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
        raise NotImplementedError(f"tree masks of the form {tree_mask_mode} are not written on a CPU.")


def _parents(parent_list: Tensor, selected_index: Tensor, topk: int) -> Tensor:
    """[B, N] the parent of each node, -1 for the root and for nodes whose parent is not in the tree."""
    after = selected_index.long() // topk  # [B, N - 1]
    named = F.pad(parent_list.long().view(len(after), -1), (0, 1), value=-1)
    value = named.gather(1, after.clamp(max=named.shape[1] - 1))
    place = _first(selected_index.long()[:, None, :] == value[:, :, None])
    parents = torch.where(after == 0, 0, torch.where(place >= 0, place + 1, -1))
    return F.pad(parents, (1, 0), value=-1)


def _ancestors(parents: Tensor) -> Tensor:
    """Bool [B, N, N]: whether a node comes to another one by going up, itself included."""
    count = parents.shape[1]
    up = (parents[:, :, None] == torch.arange(count)).float() + torch.eye(count)
    for _ in range((count - 1).bit_length()):  # each round doubles how far up is seen
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
    """Positions and links of trees given by who sees whom, tree_mask bool, flat [B, N, N]."""
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
    """Walk down each tree as long as a child is what the target would say.

    candidates: [B, N] tokens of the nodes.  target_predict: [B, N] the target's own token after each node.
    Written are accept_index [B, steps + 1], the numbers of the nodes on the way from the root; accept_token_num [B],
    how many follow the root; predicts [B * N], the target's token at each of those nodes.
    """
    wanted = target_predict.flatten().tolist()
    trees = (candidates, retrive_index, retrive_next_token, retrive_next_sibling)
    for row, (tokens, numbers, children, siblings) in enumerate(zip(*(t.tolist() for t in trees), strict=True)):
        way, node = [numbers[0]], 0
        while len(way) < accept_index.shape[1]:
            node = children[node]
            while node != -1 and tokens[node] != wanted[way[-1]]:
                node = siblings[node]
            if node == -1:
                break
            way.append(numbers[node])
        reached = torch.tensor(way)
        accept_index[row, : len(way)] = reached.to(accept_index.dtype)
        accept_token_num[row] = len(way) - 1
        predicts[reached] = target_predict.flatten()[reached].to(predicts.dtype)
