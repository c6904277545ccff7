"""Draft tree of one decoding step after a prompt, with borrowed nodes and the target's verification."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

from mtpc.errors import MTPCError
from mtpc.lab.evaluation.decoding import TargetSession
from mtpc.lab.evaluation.reference import ReferenceDrafter
from mtpc.lab.targets.frozen import FrozenTarget, check_state, default_device, state_below
from mtpc.lab.text.chat_template import ChatTemplate, load_tokenizer
from mtpc.parallel.borrow import borrow_nodes
from mtpc.target_head.shared import SharedHead


class DraftTreeNode(NamedTuple):
    """Draft token of a tree.

    Attributes:
        token: Text of the token.
        parent: Number of the parent node, -1 for the root.
        probability: Probability of the prefix that ends with this token.
        is_borrowed: Whether the node is borrowed, so that the drafter's tree of the same size lacks it.
        is_accepted: Whether the target accepts the token.
    """

    token: str
    parent: int
    probability: float
    is_borrowed: bool
    is_accepted: bool


class TreeStep(NamedTuple):
    """Decoding step with a draft tree.

    Attributes:
        first: Text of the target token that the tree continues.
        nodes: Draft tokens; parents precede their children.
        last: Text of the bonus token, which the target emits after the accepted draft tokens.
    """

    first: str
    nodes: tuple[DraftTreeNode, ...]
    last: str

    @property
    def deepest_accepted(self) -> int:
        """Number of the deepest accepted node, before the bonus token; -1 for the root."""
        return max((number for number, node in enumerate(self.nodes) if node.is_accepted), default=-1)

    @property
    def accepted(self) -> int:
        """Number of accepted draft tokens."""
        return sum(node.is_accepted for node in self.nodes)


class DraftTreeShape(NamedTuple):
    """Shape of a draft tree.

    Attributes:
        nodes: Number of nodes.
        children: Most children of a node.
        borrow: Number of borrowed nodes, see `mtpc.parallel.borrow`.
    """

    nodes: int
    children: int
    borrow: int


@torch.inference_mode()
def tree_step(folder: Path, target_folder: Path, prompt: str, shape: DraftTreeShape) -> TreeStep:
    """Run one greedy decoding step, after the first token that the target generates.

    Args:
        folder: Drafter checkpoint.
        target_folder: Folder of the target.
        prompt: User turn if the target has a chat template, else text to continue.
        shape: Shape of the draft tree.

    Returns:
        The step with its draft tree.

    Raises:
        MTPCError: A folder cannot be loaded, drafter and target do not fit, the prompt is empty, or the drafter does
            not support such a tree.
    """
    target = FrozenTarget(target_folder, device=default_device())
    drafter = target.load_drafter(folder)
    check_state(str(folder), drafter)
    tokenizer = load_tokenizer(target_folder)
    ids: list[int] = tokenizer(prompt).input_ids
    if tokenizer.chat_template is not None:
        ids = ChatTemplate(target_folder).question(prompt)
    if not ids:
        raise MTPCError(f"--tree {prompt!r} holds no token; give a prompt of at least one token.")
    hidden, logits, _ = TargetSession(target, state_below(drafter)).read(ids, 0)
    text = [*ids, int(logits[0, -1].argmax())]
    session = ReferenceDrafter(drafter, SharedHead.of(target.model))
    following = torch.tensor([text[1:]], device=target.device)
    depth = drafter.config.num_drafts
    best = session.draft_tree(hidden, following, shape.nodes, max_children=shape.children, depth=depth)
    tree = borrow_nodes(best, shape.borrow)
    tokens, parents = tree.tokens[0].tolist(), tree.parents[0].tolist()
    path, last = _accepted_path(tokens, parents, lambda drafts: _most_probable(target, [*text, *drafts]))
    drafted = set(_prefixes(best.tokens[0].tolist(), best.parents[0].tolist()))
    nodes = (
        DraftTreeNode(tokenizer.decode([prefix[-1]]), parent, math.exp(score), prefix not in drafted, number in path)
        for number, (prefix, parent, score) in enumerate(
            zip(_prefixes(tokens, parents), parents, tree.scores[0].tolist(), strict=True)
        )
    )
    return TreeStep(tokenizer.decode(text[-1:]), tuple(nodes), tokenizer.decode([last]))


def _prefixes(tokens: list[int], parents: list[int]) -> list[tuple[int, ...]]:
    """Return the prefix of each node, its token included."""
    prefixes: list[tuple[int, ...]] = []
    for token, parent in zip(tokens, parents, strict=True):
        prefixes.append((*(prefixes[parent] if parent >= 0 else ()), token))
    return prefixes


def _most_probable(target: FrozenTarget, text: list[int]) -> int:
    """Return the target's most probable token after a text."""
    return int(target.features(torch.tensor([text])).logits[0, -1].argmax())


def _accepted_path(tokens: list[int], parents: list[int], choose: Callable[[list[int]], int]) -> tuple[list[int], int]:
    """Return the accepted nodes and the target's token after them.

    choose: Returns the target's token after the accepted draft tokens.
    """
    path: list[int] = []
    last = -1
    while True:
        token = choose([tokens[node] for node in path])
        matching = [node for node, parent in enumerate(parents) if parent == last and tokens[node] == token]
        if not matching:
            return path, token
        (last,) = matching
        path.append(last)
