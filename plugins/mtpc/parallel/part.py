"""The contract of a parallel part, between the adapters, the reference implementation and the scorers that use it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import ClassVar, Self

from torch import Tensor, nn

from mtpc.draft import Draft, DraftContext, Mode, TreeDraft, concat_requests
from mtpc.errors import MTPCError
from mtpc.memory import MAX_PROBS
from mtpc.parallel.beams import BeamTree
from mtpc.prompt_lookup.mixture import Copying

NO_TREES = "this drafter cannot draft trees: its parallel part drafts chains only."


def in_parts(rows: int, most: int) -> Iterator[slice]:
    """Yield slices of at most ``most`` of ``rows`` rows, of lengths as equal as possible."""
    size = math.ceil(rows / math.ceil(rows / most)) if rows else 1
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


def draft_in_parts(
    draft: Callable[[DraftContext, Tensor | None, Tensor | None, int, Copying | None], Draft],
    parts: Iterable[slice],
    context: DraftContext,
    temperature: Tensor | None,
    noise: Tensor | None,
    num_drafts: int,
    copying: Copying | None,
) -> Draft:
    """Draft for some requests at a time, so that what is computed for them fits into memory.

    Args:
        draft: Drafts for some requests; it is called with the arguments below.
        parts: The requests of each call, see `in_parts`.
        context: See `ParallelPart.draft`.
        temperature: See `ParallelPart.draft`.
        noise: See `ParallelPart.draft`.
        num_drafts: See `ParallelPart.draft`.
        copying: See `ParallelPart.draft`.

    Returns:
        The drafts of all requests.
    """
    drafts = []
    for part in parts:
        some_temperature, some_noise = (None if each is None else each[part] for each in (temperature, noise))
        copied = None if copying is None else copying.of_rows(part)
        drafts.append(draft(context.of_rows(part), some_temperature, some_noise, num_drafts, copied))
    return concat_requests(drafts)


class ParallelPart(nn.Module, ABC):
    """A joint distribution over the tokens after a context, conditioned exactly on every token of it.

    It is stateless: each call gets the whole `DraftContext`.

    Attributes:
        vocab_size: V.
        reads_head: Whether it needs `DraftContext.inputs` and `DraftContext.head`.
        reads_autoregressive: Whether it needs an autoregressive part before it.
        follows_autoregressive: Whether it can follow an autoregressive part.
        drafts_trees: Whether it implements `draft_tree` and, behind an autoregressive part, `extend_tree`.
        compiles: Whether drafts for one request are compiled on a CPU (`mtpc.parallel.compiled`). False where a draft
            has more operators than can be compiled in seconds.
    """

    vocab_size: int
    reads_head: bool = False
    reads_autoregressive: ClassVar[bool] = False
    follows_autoregressive: ClassVar[bool] = True
    drafts_trees: ClassVar[bool] = False
    compiles: ClassVar[bool] = True

    def loaded(self, path: Path) -> None:
        """Check what was loaded and prepare for drafting; called once the weights have been loaded.

        Args:
            path: The file of the weights, for an error.

        Raises:
            MTPCError: Stored values are not possible.
        """

    @property
    @abstractmethod
    def max_drafts(self) -> int:
        """Most tokens of one draft."""

    @property
    def num_evidence(self) -> int:
        """First tokens of its distribution that are evidence: 1, the last token of the context, or 0."""
        return 0

    @property
    @abstractmethod
    def leaf_shape(self) -> tuple[int, int, int]:
        """Shape of the leaf distributions that one draft of one request mixes: (positions, components, V)."""

    @abstractmethod
    def draft(
        self,
        context: DraftContext,
        temperature: Tensor | None,
        noise: Tensor | None,
        num_drafts: int,
        mode: Mode,
        copying: Copying | None = None,
    ) -> Draft:
        """Draft tokens after the context.

        Shapes are static and nothing waits for the host.

        Args:
            context: States and tokens of B requests.
            temperature: float32 [B]; 0 is greedy. May be None where ``mode`` is "greedy".
            noise: float64 [B, K], uniforms in [0, 1), one per draft token. May be None where ``mode`` is "greedy".
            num_drafts: K, at most `max_drafts`.
            mode: "sampled" where every temperature is positive, "greedy" where none is, else "mixed".
            copying: Prompt lookup's proposal of at least K tokens, which is mixed in. None: no prompt lookup.

        Returns:
            K draft tokens with the exact distributions that they were drawn from.
        """

    def parts(self, rows: int, num_drafts: int) -> Iterator[slice]:
        """Return which requests to draft at a time, so that there are at most `MAX_PROBS` draft probabilities."""
        return in_parts(rows, max(1, MAX_PROBS // (num_drafts * self.vocab_size)))

    @abstractmethod
    def log_probs(self, context: DraftContext, tokens: Tensor, temperature: float, conditioned: bool = True) -> Tensor:
        """Compute log q(x_i | context, x_<i) of the tokens after the context, as they would be drafted.

        Args:
            context: States and tokens of B requests.
            tokens: int64 [B, k], k <= max_drafts.
            temperature: Positive.
            conditioned: Whether to condition on the evidence (see `num_evidence`). False sums it out, as a drafter that
                ignores it would.

        Returns:
            [B, k].
        """

    @abstractmethod
    def most_probable_tokens(self, context: DraftContext, tokens: Tensor) -> Tensor:
        """Return the most probable token at each position, given the tokens before it.

        Up to the first mismatch with ``tokens`` these are the greedy draft.

        Args:
            context: States and tokens of B requests.
            tokens: int64 [B, k], k <= max_drafts.

        Returns:
            int64 [B, k].
        """

    def draft_tree(
        self,
        context: DraftContext,
        temperature: Tensor | None,
        size: int,
        max_children: int | None = None,
        *,
        depth: int | None = None,
    ) -> TreeDraft:
        """Draft a tree of the most probable continuations; `mtpc.verify.tree` verifies it.

        Args:
            context: States and tokens of B requests.
            temperature: float32 [B]. Requests at 0, and all where it is None, are drafted at temperature 1: only the
                order of the probabilities counts.
            size: N, nodes of the tree.
            max_children: Most children of a node; None: any number. See `mtpc.parallel.tree.grow_tree`.
            depth: Most tokens of one path, max_drafts by default.

        Raises:
            MTPCError: Where it drafts no trees, or the limits allow fewer than N nodes.
        """
        raise MTPCError(NO_TREES)

    def extend_tree(
        self, growth: BeamTree, context: DraftContext, temperature: Tensor | None, depth: int, children: int, nodes: int
    ) -> BeamTree:
        """Add this part's levels to the tree of an autoregressive part, under its beams.

        Args:
            growth: The autoregressive part's levels, and the k beams of each of B requests.
            context: The context of each beam, [B k] rows; with `reads_head` also inputs and head.
            temperature: float32 [B k], positive; None: 1.
            depth: Levels to add, at most max_drafts.
            children: Most children of a node.
            nodes: Nodes that are kept of each level, over all beams of a request.

        Returns:
            The extended tree.

        Raises:
            MTPCError: Where it drafts no trees.
        """
        raise MTPCError(NO_TREES)

    def shortened(self, num_drafts: int) -> Self:
        """Return a part with the same distribution of its first tokens that computes only these, where it can."""
        return self
