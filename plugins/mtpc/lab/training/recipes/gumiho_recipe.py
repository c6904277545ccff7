"""Recipe of draft layers and parallel heads, trained together (Gumiho paper, section 4.1 and appendix C)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mtpc.autoregressive.config import layer_of
from mtpc.errors import MTPCError
from mtpc.files.config_model import validated
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.text.conversations import Conversation
from mtpc.lab.training.conversation_recipe import ConversationRecipe, MicroBatch
from mtpc.lab.training.hidden_states import HiddenStateCache
from mtpc.lab.training.initialization import start_from_layers, start_from_target
from mtpc.lab.training.recipes.gumiho_loss import position_losses
from mtpc.lab.training.settings import GumihoSettings
from mtpc.memory import check_training_memory
from mtpc.methods.drafter import Drafter
from mtpc.methods.gumiho import Gumiho, GumihoConfig
from mtpc.parallel.independent import IndependentPart


class GumihoRecipe(ConversationRecipe):
    """Recipe of one or several Gumiho drafters on the same batches.

    Args:
        target: Frozen target that generated the conversations.
        conversations: Conversations of the training split.
        configs: Configuration of each drafter, by name. All must have the same number of draft tokens.
        settings: Settings of the training.
        start: Drafter whose autoregressive part all drafters start from, see `start_from_layers`. It may be FastMTP's.
            A drafter of the same configuration starts from all of its weights.
        states: Cache of hidden states, see `ConversationRecipe`.

    Raises:
        MTPCError: A drafter has another number of draft tokens, the drafters do not fit into memory, or no conversation
            can be used.
    """

    settings: GumihoSettings

    def __init__(
        self,
        target: FrozenTarget,
        conversations: Sequence[Conversation],
        configs: dict[str, GumihoConfig],
        settings: GumihoSettings,
        *,
        start: Drafter | None = None,
        states: HiddenStateCache | None = None,
    ) -> None:
        self.configs = configs
        for name, config in configs.items():
            if config.parallel is not None and config.max_drafts != settings.drafts:
                raise MTPCError(
                    f"{name} drafts {config.max_drafts} tokens, but --steps and --positions add up to "
                    f"{settings.drafts}; train drafters of one length at a time."
                )
        with torch.device("meta"):
            check_training_memory((Drafter(Gumiho(), config) for config in configs.values()), "these drafters")
        super().__init__(target, conversations, settings, states, start)
        if any(config.parallel is not None and config.parallel.rank > 1 for config in configs.values()):
            target.check_head()  # the loss of joint heads is always a KL divergence

    def models(self) -> dict[str, Drafter]:
        """Return drafters with layers from the target or the drafter to start from, and random heads."""
        drafters = {}
        for name, config in self.configs.items():
            torch.manual_seed(self.settings.seed)
            drafter = Drafter(Gumiho(), config)
            self._initialize(drafter)
            drafters[name] = drafter.to(self.target.device, torch.float32)
        return drafters

    def _initialize(self, drafter: Drafter) -> None:
        autoregressive, start, model = drafter.autoregressive, self.start, self.target.model
        assert autoregressive is not None
        if isinstance(drafter.parallel, IndependentPart):
            drafter.parallel.initialize(model.model.norm.weight)
        if start is None:
            start_from_target(autoregressive, model)
        elif start.config == drafter.config:
            drafter.load_state_dict(start.state_dict())
        elif start.autoregressive is not None:
            start_from_layers(autoregressive, start.autoregressive, model)
        else:
            raise MTPCError("the drafter to start from has no autoregressive part; name a FastMTP or Gumiho drafter.")

    def weights(self, drafter: Drafter) -> Tensor:
        """Return weights proportional to beta^(k-1), which sum to 1."""
        powers = self.settings.beta ** torch.arange(self.settings.drafts, device=self.target.device)
        return powers / powers.sum()

    def losses(self, drafter: Drafter, micro_batch: MicroBatch) -> Tensor:
        """Return the loss of every draft position (Gumiho paper, appendix C)."""
        settings = self.settings
        drafts, loss = settings.drafts, settings.loss
        return position_losses(drafter, micro_batch, drafts, settings.regression, settings.classification, loss)


def config_for(target: Any, parallel: dict[str, Any] | None, **options: Any) -> GumihoConfig:
    """Return the configuration of a Gumiho drafter with layers like those of a target.

    Args:
        target: Configuration of the target in transformers.
        parallel: Keys of a `ParallelConfig`. None for a drafter without parallel heads.
        options: Other keys of a `GumihoConfig`.

    Returns:
        The checked configuration.

    Raises:
        MTPCError: The target's architecture is not supported, or a value is not allowed.
    """
    return validated(GumihoConfig, {**layer_of(target), **options, "parallel": parallel}, "the requested drafter")
