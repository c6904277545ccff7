"""Shape of the drafts, a chain or a tree, from SGLang's settings and the drafter's configuration."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, NamedTuple

from mtpc.draft import MAX_TREE_NODES
from mtpc.errors import MTPCError
from mtpc.files.config_model import short_repr
from mtpc.methods import DrafterConfig, method_of
from mtpc.methods.drafter import check_drafts, split_drafts
from mtpc.parallel.borrow import check_borrowed
from mtpc.parallel.tree import level_widths
from sglang_mtpc.token_map import copies, read

DRAFT_STEPS = 2  # most before a parallel part in a tree: later beams of SGLang's loop are unknown
RUNNING_REQUESTS = 48  # SGLang's own default for speculative decoding
KERNEL_TOKENS = 1024  # most verified tokens of a request in SGLang's kernels for drafts on GPUs
logger = logging.getLogger(f"sglang.{__name__}")


class DraftShape(NamedTuple):
    """Shape of each request's draft: a chain if ``children`` is 1, else a tree.

    Attributes:
        depth: Draft tokens on the longest path.
        children: Most children of a node, without borrowed ones.
        nodes: Draft tokens.
        borrowed: Nodes of a tree that are borrowed, see `mtpc.parallel.borrow`.
    """

    depth: int
    children: int
    nodes: int
    borrowed: int = 0

    @property
    def most_children(self) -> int:
        """Most children of a node in the verified tree, where each node may have a borrowed child as well."""
        return self.children + (self.borrowed > 0)

    def of_drafter(self, config: DrafterConfig) -> DraftShape:
        """Return the chain that the drafter drafts; prompt lookup may extend it to ``depth``."""
        tokens = min(config.num_drafts, self.depth)
        return DraftShape(tokens, 1, tokens)


def flag(key: str) -> str:
    """Return a setting's name as a command-line option."""
    return "--" + key.replace("_", "-")


STEPS, TOKENS, TOPK = map(flag, ("speculative_num_steps", "speculative_num_draft_tokens", "speculative_eagle_topk"))
ADAPTIVE, ADAPTIVE_CONFIG = flag("speculative_adaptive"), flag("speculative_adaptive_config")


def draft_shape(settings: Any, config: DrafterConfig) -> DraftShape:
    """Return the shape of the drafts from the settings, completed by the drafter's configuration.

    Args:
        settings: SGLang's server arguments.
        config: Configuration of the drafter.

    Returns:
        The shape.

    Raises:
        MTPCError: The settings contradict each other, or the drafter cannot draft as much.
    """
    children = 1 if settings.speculative_eagle_topk is None else settings.speculative_eagle_topk
    if children < 1:
        raise MTPCError(f"{TOPK} is {children}, but it must be at least 1.")
    if read(settings.speculative_token_map).copy_tokens is not None:
        raise MTPCError(f"'copy_tokens' of --speculative-token-map is for SGLang's own drafters: set {STEPS} instead.")
    if children > 1 and settings.speculative_adaptive:
        raise MTPCError(f"{TOPK} is {children}, but with {ADAPTIVE} it must be 1: SGLang adapts the length of chains.")
    return _chain(settings, config) if children == 1 else _tree(settings, config, children)


def _chain(settings: Any, config: DrafterConfig) -> DraftShape:
    """Return the shape of a chain, or raise `MTPCError`."""
    depth, tokens, setting = settings.speculative_num_steps, settings.speculative_num_draft_tokens, STEPS
    if settings.speculative_adaptive:
        depth, setting = _largest_step(settings), f"The largest of candidate_steps ({ADAPTIVE_CONFIG})"
    elif depth is None:
        depth, setting = (config.num_drafts, STEPS) if tokens is None else (tokens - 1, f"{TOKENS} less 1")
    copied = copies(settings.speculative_token_map)
    check_drafts(config, depth, setting, settings.speculative_draft_model_path, copied)
    if tokens not in (None, depth + 1):
        raise MTPCError(
            f"{TOKENS} is {tokens}, but a chain of {depth} draft tokens is verified as {depth + 1} tokens; for a tree, "
            f"set {TOPK} to 2 or more."
        )
    if read(settings.speculative_token_map).borrow:
        raise MTPCError(f"'borrow' of --speculative-token-map needs a draft tree: set {TOPK} to 2 or more.")
    return DraftShape(depth, 1, depth)


def _largest_step(settings: Any) -> int:
    """Return the longest of the draft lengths among which SGLang chooses, or raise `MTPCError`."""
    from sglang.srt.speculative.adaptive_spec_params import resolve_candidate_steps_from_config

    path, steps = settings.speculative_adaptive_config, settings.speculative_num_steps
    try:
        largest: int = max(resolve_candidate_steps_from_config(path))
    except (OSError, ValueError, AttributeError) as error:
        raise MTPCError(f"{ADAPTIVE_CONFIG} is {path}, which cannot be used: {error}.") from error
    if steps not in (None, largest):
        raise MTPCError(
            f"{STEPS} is {short_repr(steps)}, but with {ADAPTIVE} it is the largest of candidate_steps, {largest}: "
            "leave it out."
        )
    return largest


def _tree(settings: Any, config: DrafterConfig, children: int) -> DraftShape:
    """Return the shape of a tree, or raise `MTPCError`."""
    depth, tokens = settings.speculative_num_steps, settings.speculative_num_draft_tokens
    if tokens is None or tokens < 2:
        raise MTPCError(
            f"{TOKENS} is {tokens}, but with {TOPK} {children} it must be the number of the tree's nodes, root "
            "included, at least 2."
        )
    nodes = tokens - 1
    if max(nodes, children) > MAX_TREE_NODES:
        raise MTPCError(
            f"{TOKENS} is {short_repr(tokens)} and {TOPK} {short_repr(children)}, but a tree has at most "
            f"{MAX_TREE_NODES} nodes."
        )
    if settings.device != "cpu" and tokens > KERNEL_TOKENS:
        raise MTPCError(f"{TOKENS} is {tokens}, but SGLang's kernels on GPUs verify at most {KERNEL_TOKENS}: lower it.")
    if depth is None:
        depth = min(config.num_drafts, nodes)
    check_drafts(config, depth, STEPS, settings.speculative_draft_model_path)
    if depth > nodes:
        raise MTPCError(f"{STEPS} is {depth}, but with {TOKENS} {tokens} a tree is at most {nodes} deep.")
    autoregressive, parallel = split_drafts(config, depth)
    if autoregressive and parallel:
        _check_both(settings, autoregressive, parallel, children, nodes)
    elif autoregressive:
        _check_beam(nodes, depth, children)
    else:
        level_widths(nodes, depth, config.vocab_size, children)
    count = read(settings.speculative_token_map).borrow
    check_borrowed(nodes, count)
    return DraftShape(depth, children, nodes, count)


def _check_both(settings: Any, autoregressive: int, parallel: int, children: int, nodes: int) -> None:
    """Check that `sglang_mtpc.beam_tree` can draft a tree with both parts.

    Raises:
        MTPCError: The autoregressive part has too many draft steps, or there are too few candidates for the nodes.
    """
    if autoregressive > DRAFT_STEPS:
        raise MTPCError(
            f"{TOPK} is {children}, but {settings.speculative_draft_model_path} makes {autoregressive} autoregressive "
            f"draft steps before its parallel part: trees of both parts allow {DRAFT_STEPS}, so it must be 1."
        )
    room = level = children
    for _ in range(autoregressive - 1):
        room, level = room + children**2, children
    for _ in range(parallel):
        level = min(nodes, level * children)
        room += level
    if nodes > room:
        raise MTPCError(
            f"a draft tree of {nodes} nodes does not fit: depth {autoregressive + parallel}, children {children} leave "
            f"room for {room}."
        )


def _check_beam(nodes: int, depth: int, children: int) -> None:
    """Check that SGLang's beam search, which continues ``children`` nodes of each level, makes enough candidates.

    Raises:
        MTPCError: There are too few candidates for the nodes.
    """
    room = children + (depth - 1) * children**2
    if nodes > room:
        raise MTPCError(
            f"a draft tree of {nodes} nodes does not fit: depth {depth}, children {children} leave room for {room}."
        )


def complete_settings(settings: Any) -> None:
    """Complete the settings in place: the shape of the drafts, and defaults that drafters need.

    Args:
        settings: SGLang's server arguments.

    Raises:
        MTPCError: See `draft_shape`.
    """
    folder = Path(settings.speculative_draft_model_path)
    method = method_of(folder)
    shape = draft_shape(settings, method.read_config(folder))
    settings.speculative_num_steps = shape.depth
    settings.speculative_eagle_topk = shape.children
    settings.speculative_num_draft_tokens = shape.nodes + 1
    settings.speculative_use_rejection_sampling = shape.children == 1  # chains carry their distributions
    settings.speculative_draft_model_quantization = None  # SGLang would use the target's
    adapts = settings.device == "cpu" and read(settings.speculative_token_map).adaptive
    if (adapts or method.reads_text) and not settings.disable_overlap_schedule:
        settings.disable_overlap_schedule = True
        logger.warning("The overlap schedule is disabled: these drafts are made from the last step's tokens.")
    if settings.enable_mixed_chunk:
        settings.enable_mixed_chunk = False
        logger.warning("--enable-mixed-chunk is disabled: it would decode requests without their drafts.")
    if settings.max_running_requests is None:
        settings.max_running_requests = RUNNING_REQUESTS
        logger.warning(
            "--max-running-requests is set to %d, SGLang's default for speculative decoding; set it to change that.",
            RUNNING_REQUESTS,
        )
