"""The shape of the drafts, a chain or a tree, from SGLang's settings and the drafter's configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from mtpc.draft import MAX_TREE_NODES
from mtpc.errors import MTPCError
from mtpc.files.config_model import shown
from mtpc.methods import DrafterConfig, method_of
from mtpc.methods.drafter import check_drafts, split_drafts
from mtpc.parallel.borrow import check_borrowed
from mtpc.parallel.tree import level_widths
from sglang_mtpc.token_map import copies, read

DRAFT_STEPS = 2  # before a window, of a tree: which beams SGLang's loop goes on from after that it does not tell
RUNNING_REQUESTS = 48  # at most, unless the user says otherwise: SGLang's own default for speculative decoding


class Shape(NamedTuple):
    """What is drafted for each request: a chain where children is 1, else a tree.

    depth: longest path.  children: most children of a node.  nodes: drafted tokens.  borrowed: nodes of a tree that
    are borrowed, see `mtpc.parallel.borrow`.
    """

    depth: int
    children: int
    nodes: int
    borrowed: int = 0

    @property
    def most_children(self) -> int:
        """Of a node of the tree that is verified: a path may go on with a borrowed node beside children of its own."""
        return self.children + (self.borrowed > 0)

    def own(self, config: DrafterConfig) -> Shape:
        """What the drafter itself drafts of a chain that goes on being copied: no more than it is made for."""
        own = min(config.num_drafts, self.depth)
        return Shape(own, 1, own)


def flag(key: str) -> str:
    """A setting as the user writes it."""
    return "--" + key.replace("_", "-")


STEPS, TOKENS, TOPK = map(flag, ("speculative_num_steps", "speculative_num_draft_tokens", "speculative_eagle_topk"))


def draft_shape(settings: Any, config: DrafterConfig) -> Shape:
    """What to draft, from the settings and, where they leave it open, the drafter's configuration.

    Errors: `MTPCError` for settings that contradict each other or ask for more than the drafter can draft.
    """
    children = 1 if settings.speculative_eagle_topk is None else settings.speculative_eagle_topk
    if children < 1:
        raise MTPCError(f"{TOPK} is {children}, but it must be at least 1.")
    return _chain(settings, config) if children == 1 else _tree(settings, config, children)


def _chain(settings: Any, config: DrafterConfig) -> Shape:
    """Errors: `MTPCError`."""
    depth, tokens, asked = settings.speculative_num_steps, settings.speculative_num_draft_tokens, STEPS
    if depth is None:
        depth, asked = (config.num_drafts, STEPS) if tokens is None else (tokens - 1, f"{TOKENS} less 1")
    copied = copies(settings.speculative_token_map)
    check_drafts(config, depth, asked, settings.speculative_draft_model_path, copied)
    if tokens not in (None, depth + 1):
        raise MTPCError(
            f"{TOKENS} is {tokens}, but a chain of {depth} drafts is verified as {depth + 1} tokens; for a tree, set "
            f"{TOPK} to 2 or more."
        )
    if read(settings.speculative_token_map).borrow:
        raise MTPCError(f"nodes are borrowed within a tree, but {TOPK} is left out or 1, which makes chains.")
    return Shape(depth, 1, depth)


def _tree(settings: Any, config: DrafterConfig, children: int) -> Shape:
    """Errors: `MTPCError`."""
    depth, tokens = settings.speculative_num_steps, settings.speculative_num_draft_tokens
    if tokens is None or tokens < 2:
        raise MTPCError(
            f"{TOKENS} is {tokens}, but {TOPK} {children} is for trees, so it must be the number of the tree's nodes "
            "with the root counted, at least 2."
        )
    nodes = tokens - 1
    if max(nodes, children) > MAX_TREE_NODES:
        raise MTPCError(
            f"{TOKENS} is {shown(tokens)} and {TOPK} {shown(children)}, but a tree has {MAX_TREE_NODES} nodes at most."
        )
    if depth is None:
        depth = min(config.num_drafts, nodes)
    check_drafts(config, depth, STEPS, settings.speculative_draft_model_path)
    if depth > nodes:
        raise MTPCError(f"{STEPS} is {depth}, but below its root a tree of {TOKENS} {tokens} is at most {nodes} deep.")
    autoregressive, parallel = split_drafts(config, depth)
    if autoregressive and parallel:
        _check_both(settings, autoregressive, parallel, children, nodes)
    elif autoregressive:
        _check_beam(nodes, depth, children)
    else:
        level_widths(nodes, depth, config.vocab_size, children)
    count = read(settings.speculative_token_map).borrow
    check_borrowed(nodes, count)
    return Shape(depth, children, nodes, count)


def _check_both(settings: Any, autoregressive: int, parallel: int, children: int, nodes: int) -> None:
    """Whether both parts make so many candidates, from as few draft steps as `sglang_mtpc.beam_tree` needs.

    Errors: `MTPCError`.
    """
    if autoregressive > DRAFT_STEPS:
        raise MTPCError(
            f"{TOPK} is {children}, but {settings.speculative_draft_model_path} drafts {autoregressive} tokens with its serial "
            f"part before its window: trees of both parts begin with {DRAFT_STEPS} at most, so it must be 1."
        )
    room = level = children
    for _ in range(autoregressive - 1):
        room, level = room + children**2, children
    for _ in range(parallel):
        level = min(nodes, level * children)
        room += level
    if nodes > room:
        raise MTPCError(
            f"a draft tree of {nodes} nodes does not fit: depth {autoregressive + parallel}, children {children} leave room for "
            f"{room}."
        )


def _check_beam(nodes: int, depth: int, children: int) -> None:
    """Whether SGLang's search makes so many candidates: it goes on from as many nodes of a level as one has children.

    Errors: `MTPCError`.
    """
    room = children + (depth - 1) * children**2
    if nodes > room:
        raise MTPCError(
            f"a draft tree of {nodes} nodes does not fit: depth {depth}, children {children} leave room for {room}."
        )


def complete_settings(settings: Any) -> None:
    """Write what follows from the drafts' shape, and what SGLang needs to be told about its own defaults."""
    folder = Path(settings.speculative_draft_model_path)
    shape = draft_shape(settings, method_of(folder).read_config(folder))
    settings.speculative_num_steps = shape.depth
    settings.speculative_eagle_topk = shape.children
    settings.speculative_num_draft_tokens = shape.nodes + 1
    settings.speculative_use_rejection_sampling = shape.children == 1  # chains come with their distributions
    settings.speculative_draft_model_quantization = None  # SGLang's default is the target's, for another checkpoint
    if settings.device == "cpu" and read(settings.speculative_token_map).adaptive:
        settings.disable_overlap_schedule = True  # draft lengths follow from the last step's tokens
    settings.enable_mixed_chunk = False  # a decoding request's token would be computed without its drafts
    if settings.max_running_requests is None:
        settings.max_running_requests = RUNNING_REQUESTS
