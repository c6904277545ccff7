"""Prompt lookup alone: neither an autoregressive part nor a parallel part with weights (section "copying")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

import torch
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
    """What is drafted, and for which target."""

    hidden_size: HiddenSize  # d of the target, which engines ask for
    vocab_size: VocabSize  # V of the target
    num_drafts: Annotated[int, Field(ge=1, le=MAX_DRAFTS)] = 10  # K, drafts of a step unless the user says otherwise

    @property
    def own_drafts(self) -> int:
        """None: there is no part that drafts."""
        return 0

    @property
    def max_drafts(self) -> int:
        """As many as are ever copied."""
        return MAX_DRAFTS


class PromptLookupPart(ParallelPart):
    """What would be copied, for certain: where the drafter has no part, the mixture has no other component.

    How long a draft is worth verifying is decided elsewhere (`mtpc.draft_length`).  Where there is nothing to copy the
    drafts are token 0, which a target may accept as any other.
    """

    follows_autoregressive: ClassVar[bool] = False  # beside layers, prompt lookup is a setting of the engine

    def __init__(self, vocab_size: int, num_drafts: int) -> None:
        super().__init__()
        self.vocab_size, self.num_drafts = vocab_size, num_drafts

    @property
    def max_drafts(self) -> int:
        """As many as its drafter drafts unless the user says otherwise; a text can be gone on with for longer."""
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
        """See `ParallelPart.draft`; the distributions are one-hot, and the peaks are the chances that copying goes on."""
        if copying is None:
            tokens = context.tokens.new_zeros(len(context.tokens), num_drafts)
            chances = torch.zeros(tokens.shape, device=tokens.device)
        else:
            tokens, chances = (rest[:, :num_drafts] for rest in copying.rest()[:2])
        return Draft(tokens, None if mode == "greedy" else one_hot(tokens, self.vocab_size), chances)

    def log_probs(self, context: DraftContext, tokens: Tensor, temperature: float, conditioned: bool = True) -> Tensor:
        """Errors: `MTPCError`, as without the text before it a token has no probability here."""
        raise MTPCError(
            "a drafter that only copies has no distribution of its own; `mtpc bench` measures what it drafts."
        )

    def most_probable_tokens(self, context: DraftContext, tokens: Tensor) -> Tensor:
        return self.draft(context, None, None, tokens.shape[1], "greedy").tokens


class PromptLookupOnly(DraftMethod):
    """Neither part: the component that copies (see `mtpc.prompt_lookup`) has no other beside it."""

    name = "copying"
    title = "a copying drafter"
    summary = "no trained part: what the request's own text went on with before"
    architecture = "EagleCopyingForCausalLM"
    algorithm = "COPYING"
    config = PromptLookupConfig

    def parallel(self, config: PromptLookupConfig) -> ParallelPart:
        return PromptLookupPart(config.vocab_size, config.num_drafts)

    def facts(self, drafter: Drafter) -> dict[str, str]:
        return {"drafts": f"at most {drafter.config.num_drafts}, copied from the request's own text"}
