"""Recipe of an MTP layer, trained on conversations of its frozen target (FastMTP paper, sections 2.1 and 3.1)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mtpc.errors import MTPCError
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.text.conversations import Conversation
from mtpc.lab.training.conversation_recipe import ConversationRecipe, MicroBatch
from mtpc.lab.training.hidden_states import HiddenStateCache
from mtpc.lab.training.initialization import start_from_target
from mtpc.lab.training.recipes.fastmtp_loss import step_losses, step_weights
from mtpc.lab.training.settings import FastMTPSettings
from mtpc.methods.drafter import Drafter
from mtpc.methods.fastmtp import FastMTP, config_for


class FastMTPRecipe(ConversationRecipe):
    """Recipe of one FastMTP layer with K recursive steps.

    Args:
        target: Frozen target that generated the conversations.
        conversations: Conversations of the training split.
        settings: Settings of the training.
        start: Drafter to continue from, see `ConversationRecipe`.
        states: Cache of hidden states, see `ConversationRecipe`.

    Raises:
        MTPCError: The target's architecture is not supported, ``start`` has another layer, or no conversation can be
            used.
    """

    settings: FastMTPSettings

    def __init__(
        self,
        target: FrozenTarget,
        conversations: Sequence[Conversation],
        settings: FastMTPSettings,
        *,
        start: Drafter | None = None,
        states: HiddenStateCache | None = None,
    ) -> None:
        self.config = config_for(target.model.config, settings.num_drafts)
        if start is not None and self.config.model_dump(exclude={"num_drafts"}) != {
            key: value for key, value in start.config.model_dump().items() if key != "num_drafts"
        }:
            raise MTPCError(
                "the drafter to start from has another layer than this training; name a drafter of the same target."
            )
        super().__init__(target, conversations, settings, states, start)

    def models(self) -> dict[str, Drafter]:
        """Return the drafter to continue from, or one that starts from the target's last layer."""
        drafter = Drafter(FastMTP(), self.config)
        assert drafter.autoregressive is not None
        if self.start is None:
            start_from_target(drafter.autoregressive, self.target.model)
        else:
            drafter.load_state_dict(self.start.state_dict())
        return {FastMTP.name: drafter.to(self.target.device, torch.float32)}

    def weights(self, drafter: Drafter) -> Tensor:
        """Return the weight alpha_k of each step (FastMTP, equation 2)."""
        return torch.tensor(step_weights(self.settings.num_drafts, self.settings.beta), device=self.target.device)

    def losses(self, drafter: Drafter, micro_batch: MicroBatch) -> Tensor:
        """Return the loss of every step (FastMTP, equation 1)."""
        assert drafter.autoregressive is not None
        settings = self.settings
        return step_losses(
            drafter.autoregressive,
            micro_batch.head,
            micro_batch.hidden,
            micro_batch.tokens,
            micro_batch.chosen,
            settings.num_drafts,
            settings.loss,
        )
