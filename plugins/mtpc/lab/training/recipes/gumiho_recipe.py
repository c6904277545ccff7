"""How draft layers and parallel heads are trained together (Gumiho paper, section 4.1 and appendix C)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mtpc.autoregressive.config import layer_of
from mtpc.errors import MTPCError
from mtpc.files.config_model import declared
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.text.conversations import Conversation
from mtpc.lab.training.from_conversations import ConversationRecipe, Part
from mtpc.lab.training.recipes.gumiho_loss import position_losses
from mtpc.lab.training.settings import GumihoSettings
from mtpc.lab.training.start import start_from_layers, start_from_target
from mtpc.lab.training.states import HiddenStates
from mtpc.memory import check_training_memory
from mtpc.methods.drafter import Drafter
from mtpc.methods.gumiho import Gumiho, GumihoConfig
from mtpc.parallel.independent import IndependentPart


class GumihoRecipe(ConversationRecipe):
    """Several drafters of as many drafts, side by side on the same batches.

    configs: a configuration by drafter name.  conversations, states: see `ConversationRecipe`.  start: a drafter
    whose autoregressive part all begin with, FastMTP's layer too, see `start_from_layers`; one of the same configuration
    begins with all of it.

    Errors: `MTPCError` for a target of a kind that no layer computes, drafters of other numbers of drafts, or
    conversations of no use.
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
        states: HiddenStates | None = None,
    ) -> None:
        self.configs = configs
        for name, config in configs.items():
            if config.parallel is not None and config.max_drafts != settings.drafts:
                raise MTPCError(
                    f"{name} drafts {config.max_drafts} tokens, but the training is of {settings.drafts} a start."
                )
        with torch.device("meta"):
            check_training_memory((Drafter(Gumiho(), config) for config in configs.values()), "these drafters")
        super().__init__(target, conversations, settings, states, start)

    def models(self) -> dict[str, Drafter]:
        """Serial layers like the target's last ones or those to start from, heads at random."""
        started = {}
        for name, config in self.configs.items():
            torch.manual_seed(self.settings.seed)
            drafter = Drafter(Gumiho(), config)
            self._begin(drafter)
            started[name] = drafter.to(self.target.device, torch.float32)
        return started

    def _begin(self, drafter: Drafter) -> None:
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
            raise MTPCError("the drafter to start from has no autoregressive part.")

    def weights(self, drafter: Drafter) -> Tensor:
        """Powers of beta, which sum to 1."""
        powers = self.settings.beta ** torch.arange(self.settings.drafts, device=self.target.device)
        return powers / powers.sum()

    def losses(self, drafter: Drafter, part: Part) -> Tensor:
        """Of every draft."""
        settings = self.settings
        drafts, loss = settings.drafts, settings.loss
        return position_losses(drafter, part, drafts, settings.regression, settings.classification, loss)


def config_for(target: Any, parallel: dict[str, Any] | None, **options: Any) -> GumihoConfig:
    """The configuration of a drafter whose layers are like those of a target.

    target: its configuration in transformers.  parallel: keys of a `ParallelConfig`; None: there are no such heads.
    options: other keys of a `GumihoConfig`.

    Errors: `MTPCError` for a target of a kind that no layer here computes, or values that are not allowed.
    """
    return declared(
        GumihoConfig, {**layer_of(target), **options, "parallel": parallel}, "the drafter that is asked for"
    )
