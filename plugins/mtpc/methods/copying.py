"""Prompt lookup alone: a drafter without weights (section "copying" of config.json)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from mtpc.draft import MAX_DRAFTS, Draft, DraftContext, Mode, one_hot
from mtpc.errors import MTPCError
from mtpc.files.config_model import Strict
from mtpc.files.target import HiddenSize, VocabSize
from mtpc.methods.contract import DraftMethod, ParallelOnly
from mtpc.parallel.part import ParallelPart
from mtpc.prompt_lookup.mixture import Copying

if TYPE_CHECKING:
    from mtpc.methods.drafter import Drafter


class PromptLookupConfig(ParallelOnly, Strict):
    """The keys of a prompt lookup drafter.

    Attributes:
        hidden_size: d of the target, which engines require.
        vocab_size: V of the target.
        num_drafts: K, draft tokens per verification step unless the user sets it.
    """

    hidden_size: HiddenSize
    vocab_size: VocabSize
    num_drafts: Annotated[int, Field(ge=1, le=MAX_DRAFTS)] = 10

    @property
    def own_drafts(self) -> int:
        """No part drafts: every draft token comes from prompt lookup."""
        return 0

    @property
    def max_drafts(self) -> int:
        """The largest K: a match can be of any length."""
        return MAX_DRAFTS


class PromptLookupPart(ParallelPart):
    """Drafts prompt lookup's tokens with one-hot distributions, without any other mixture component.

    `mtpc.draft_length` decides how many of them are worth verifying.
    Where there is no match the draft tokens are 0, which the target may accept like any other.
    """

    # Together with draft layers, prompt lookup is a setting of the engine.
    follows_autoregressive: ClassVar[bool] = False

    def __init__(self, vocab_size: int, num_drafts: int) -> None:
        super().__init__()
        self.vocab_size, self.num_drafts = vocab_size, num_drafts

    @property
    def max_drafts(self) -> int:
        """K of the drafter's configuration; prompt lookup itself can propose more."""
        return self.num_drafts

    @property
    def leaf_shape(self) -> tuple[int, int, int]:
        """There are no distributions to mix."""
        return 0, 0, self.vocab_size

    def draft(
        self,
        context: DraftContext,
        temperature: Tensor | None,
        noise: Tensor | None,
        num_drafts: int,
        mode: Mode,
        copying: Copying | None = None,
    ) -> Draft:
        """See `ParallelPart.draft`; distributions are one-hot."""
        if copying is None:
            tokens = context.tokens.new_zeros(len(context.tokens), num_drafts)
        else:
            tokens = copying.rest()[0][:, :num_drafts]
        return Draft(tokens, None if mode == "greedy" else one_hot(tokens, self.vocab_size))

    def log_probs(self, context: DraftContext, tokens: Tensor, temperature: float, conditioned: bool = True) -> Tensor:
        """Reject the call: without the text before it a token has no probability here.

        Raises:
            MTPCError: Always.
        """
        raise MTPCError("a prompt lookup drafter has no distribution of its own: measure it with `mtpc bench`.")

    def most_probable_tokens(self, context: DraftContext, tokens: Tensor) -> Tensor:
        """Return the tokens that are drafted without a match."""
        return self.draft(context, None, None, tokens.shape[1], "greedy").tokens


class PromptLookupOnly(DraftMethod):
    """Prompt lookup (see `mtpc.prompt_lookup`) without another mixture component."""

    name = "copying"
    title = "a prompt lookup drafter"
    summary = "no trained part: copies what followed the same tokens earlier in the request"
    architecture = "EagleCopyingForCausalLM"
    algorithm = "COPYING"
    config = PromptLookupConfig

    def parallel(self, config: PromptLookupConfig) -> ParallelPart:
        """Build the part, which has no weights."""
        return PromptLookupPart(config.vocab_size, config.num_drafts)

    def facts(self, drafter: Drafter) -> dict[str, str]:
        """Return the number of draft tokens."""
        return {"drafts": f"at most {drafter.config.num_drafts}, copied from the request's text"}
