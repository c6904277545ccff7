"""What a parallel part is: the contract between a window and the adapters, sessions and scorers that draft with it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, Self

from torch import Tensor, nn

from mtpc.draft import Draft, DraftContext, Mode, TreeDraft
from mtpc.errors import MTPCError
from mtpc.memory import MAX_PROBS
from mtpc.parallel.beams import BeamTree
from mtpc.prompt_lookup.mixture import Copying

NO_TREES = "this drafter's parallel part drafts chains, no trees."


def in_parts(rows: int, most: int) -> Iterator[slice]:
    """Slices of so many rows, none longer than ``most``, of lengths as equal as may be."""
    size = math.ceil(rows / math.ceil(rows / most))
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


class ParallelPart(nn.Module, ABC):
    """A joint distribution over the tokens after those that are known, conditioned exactly on these.

    Attributes:
        vocab_size: V.
        reads_autoregressive: Whether it needs `DraftContext.inputs` and `DraftContext.head`, hence an autoregressive part before it.
        follows_autoregressive: Whether it can stand behind an autoregressive part.
        drafts_trees: Whether it has `draft_tree` and, behind an autoregressive part, `extend_tree`.
    """

    vocab_size: int
    reads_autoregressive: ClassVar[bool] = False
    follows_autoregressive: ClassVar[bool] = True
    drafts_trees: ClassVar[bool] = False

    @property
    @abstractmethod
    def max_drafts(self) -> int:
        """Tokens one draft can hold."""

    @property
    def num_evidence(self) -> int:
        """Tokens that its own distribution begins with and that are evidence: 1, the last that is known, or 0."""
        return 0

    @property
    @abstractmethod
    def leaf_shape(self) -> tuple[int, int, int]:
        """Of the distributions over tokens that one draft of one row mixes: positions, components, V."""

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
        """Draft ``num_drafts`` <= max_drafts tokens after those that are known.

        copying: what would be copied instead of them, at least as many tokens; None: the window alone drafts.
        temperature: float32 [B].  noise: float64 [B, K], uniforms in [0, 1), one for each draft.  mode: "sampled" when
        every temperature is positive, "greedy" when none is (then temperature and noise may be None), "mixed"
        otherwise.  Shapes are static and nothing waits for the host.
        """

    def parts(self, rows: int, num_drafts: int) -> Iterator[slice]:
        """The rows to draft at a time, no more than `MAX_PROBS` probabilities of drafts."""
        return in_parts(rows, max(1, MAX_PROBS // (num_drafts * self.vocab_size)))

    @abstractmethod
    def log_probs(self, context: DraftContext, tokens: Tensor, temperature: float, conditioned: bool = True) -> Tensor:
        """Log q(x_i | known, x_<i) of the tokens x after those that are known, as they would be drafted: [B, k].

        tokens: int64 [B, k], k <= max_drafts.  temperature: positive.  conditioned: False leaves out what is evidence
        (see `num_evidence`), which is summed out instead: what a drafter that ignores it would do.
        """

    @abstractmethod
    def most_probable_tokens(self, context: DraftContext, tokens: Tensor) -> Tensor:
        """The most probable token at the place of each, given those before it: int64 [B, k], as for `log_probs`.

        Up to the first that is another than the text's they are the greedy draft.
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
        """Draft a tree of ``size`` nodes after the tokens that are known, the most probable continuations.

        temperature: float32 [B]; rows at 0, and all where it is None, are drafted at temperature 1: only the order of
        the probabilities counts.  depth: tokens of one path at most, max_drafts by default.  max_children, cost and
        errors: see `mtpc.parallel.tree.grow_tree`.  Verified by the rules of `mtpc.verify.tree`.

        Errors: `MTPCError` where it drafts no trees.
        """
        raise MTPCError(NO_TREES)

    def extend_tree(
        self, growth: BeamTree, context: DraftContext, temperature: Tensor | None, depth: int, children: int, nodes: int
    ) -> BeamTree:
        """Return the tree of an autoregressive part with this part's levels under its beams.

        Args:
            growth: The autoregressive part's levels, and the k beams of each of B requests.
            known: What is known under each beam, [B k] rows; with `reads_autoregressive` also what that needs.
            temperature: Positive, float32 [B k]; None: 1.
            depth: Levels to add, at most max_drafts.
            children: Of a node at most.
            nodes: Kept of each level, over all beams of a request.

        Raises:
            MTPCError: Where it drafts no trees.
        """
        raise MTPCError(NO_TREES)

    def shortened(self, num_drafts: int) -> Self:
        """A window with the same distribution of its first tokens that computes no more than these, where it can."""
        return self
