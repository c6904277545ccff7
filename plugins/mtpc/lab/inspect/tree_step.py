"""What a drafter drafts as a tree after a prompt, what of it is borrowed, and what the target says to it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

from mtpc.errors import MTPCError
from mtpc.lab.targets.frozen import FrozenTarget, check_state, default_device
from mtpc.lab.text.chat_template import ChatTemplate, load_tokenizer
from mtpc.methods.drafter import load_drafter
from mtpc.methods.reference import ReferenceDrafter
from mtpc.parallel.borrow import borrow_nodes
from mtpc.target_head.shared import SharedHead


class Node(NamedTuple):
    """A drafted token.

    parent: its place among the nodes, -1 for the root.  probability: of all that leads to it.  is_borrowed: the
    drafter's own tree of as many nodes would be without it.
    """

    token: str
    parent: int
    probability: float
    is_borrowed: bool
    is_accepted: bool


class TreeStep(NamedTuple):
    """A step: first, the target's own token that the tree continues, then the nodes, and last, its own that follows."""

    first: str
    nodes: tuple[Node, ...]
    last: str

    @property
    def reached(self) -> int:
        """The deepest accepted node, which the target's own token follows; -1 for the root."""
        return max((place for place, node in enumerate(self.nodes) if node.is_accepted), default=-1)

    @property
    def accepted(self) -> int:
        """How many drafts are accepted."""
        return sum(node.is_accepted for node in self.nodes)


class Shape(NamedTuple):
    """nodes: of the tree.  children: of a node at most.  borrow: borrowed nodes, see `mtpc.parallel.borrow`."""

    nodes: int
    children: int
    borrow: int


@torch.inference_mode()
def tree_step(folder: Path, target_folder: Path, prompt: str, shape: Shape) -> TreeStep:
    """The step after the first token that the target says, greedily, to a prompt.

    prompt: what a user says where the target has a chat template, else text to go on with.

    Errors: `MTPCError` where one of the folders does not load or both do not fit, for a prompt without tokens, for a
    drafter that drafts no trees, or a tree that does not fit.
    """
    target = FrozenTarget(target_folder, device=default_device())
    drafter = load_drafter(folder, target.facts, device=target.device)
    check_state(str(folder), drafter.config)
    tokenizer = load_tokenizer(target_folder)
    asked: list[int] = tokenizer(prompt).input_ids
    if tokenizer.chat_template is not None:
        asked = ChatTemplate(target_folder).question(prompt)
    if not asked:
        raise MTPCError("the prompt of --tree holds no token.")
    hidden, logits = target.features(torch.tensor([asked]))
    text = [*asked, int(logits[0, -1].argmax())]
    session = ReferenceDrafter(drafter, SharedHead.of(target.model))
    following = torch.tensor([text[1:]], device=target.device)
    depth = drafter.config.num_drafts
    best = session.draft_tree(hidden, following, shape.nodes, max_children=shape.children, depth=depth)
    tree = borrow_nodes(best, shape.borrow)
    tokens, parents = tree.tokens[0].tolist(), tree.parents[0].tolist()
    path, last = _walk(tokens, parents, lambda drafts: _choice(target, [*text, *drafts]))
    drafted = set(_prefixes(best.tokens[0].tolist(), best.parents[0].tolist()))
    nodes = (
        Node(tokenizer.decode([prefix[-1]]), parent, math.exp(score), prefix not in drafted, place in path)
        for place, (prefix, parent, score) in enumerate(
            zip(_prefixes(tokens, parents), parents, tree.scores[0].tolist(), strict=True)
        )
    )
    return TreeStep(tokenizer.decode(text[-1:]), tuple(nodes), tokenizer.decode([last]))


def _prefixes(tokens: list[int], parents: list[int]) -> list[tuple[int, ...]]:
    """The tokens that lead to each node, its own the last."""
    found: list[tuple[int, ...]] = []
    for token, parent in zip(tokens, parents, strict=True):
        found.append((*(found[parent] if parent >= 0 else ()), token))
    return found


def _choice(target: FrozenTarget, text: list[int]) -> int:
    """The target's likeliest token after a text."""
    return int(target.features(torch.tensor([text])).logits[0, -1].argmax())


def _walk(tokens: list[int], parents: list[int], choose: Callable[[list[int]], int]) -> tuple[list[int], int]:
    """The nodes that the target's choices lead to, and its choice after the last of them.

    choose: from the drafts that are accepted so far.
    """
    path: list[int] = []
    place = -1
    while True:
        choice = choose([tokens[node] for node in path])
        found = [node for node, parent in enumerate(parents) if parent == place and tokens[node] == choice]
        if not found:
            return path, choice
        (place,) = found
        path.append(place)
