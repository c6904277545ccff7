"""How an MTP layer is trained on conversations of its frozen target (FastMTP paper, sections 2.1 and 3.1)."""

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
    """One layer.

    conversations, states, start: see `ConversationRecipe`.

    Errors: `MTPCError` for a target of a kind that no layer computes, another start, or conversations of no use.
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
            raise MTPCError("the drafter to start from has another layer than one like the target's would be.")
        super().__init__(target, conversations, settings, states, start)

    def models(self) -> dict[str, Drafter]:
        """The layer to go on from, or one like the target's last."""
        drafter = Drafter(FastMTP(), self.config)
        assert drafter.autoregressive is not None
        if self.start is None:
            start_from_target(drafter.autoregressive, self.target.model)
        else:
            drafter.load_state_dict(self.start.state_dict())
        return {FastMTP.name: drafter.to(self.target.device, torch.float32)}

    def weights(self, drafter: Drafter) -> Tensor:
        """alpha_k of each step."""
        return torch.tensor(step_weights(self.settings.num_drafts, self.settings.beta), device=self.target.device)

    def losses(self, drafter: Drafter, micro_batch: MicroBatch) -> Tensor:
        """Of every step."""
        assert drafter.autoregressive is not None
        settings = self.settings
        return step_losses(
            drafter.autoregressive,
            micro_batch.head,
            micro_batch.hidden,
            micro_batch.tokens,
            micro_batch.chosen,
            settings.num_drafts,
            settings.attention,
            settings.loss,
        )
