"""Recipe of circuits and Markov heads for a target with subword tokens, trained on its conversations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from mtpc.errors import MTPCError
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.text.conversations import Conversation
from mtpc.lab.training.conversation_recipe import ConversationRecipe, weights_digest
from mtpc.lab.training.hidden_states import HiddenStateCache
from mtpc.lab.training.load_balance import ComponentUsage, balance_loss
from mtpc.lab.training.optimizers import make_optimizers
from mtpc.lab.training.processes import Processes
from mtpc.lab.training.recipe import TrainingBatch
from mtpc.lab.training.recipes.conversation_circuit_loss import WindowBatch, circuit_losses, component_usage, part_of
from mtpc.lab.training.recipes.mtpc_loss import discounts
from mtpc.lab.training.settings import ConversationCircuitSettings
from mtpc.memory import check_training_memory
from mtpc.methods.drafter import Drafter
from mtpc.methods.mtpc import MTPC, MTPCConfig
from mtpc.parallel.circuit_part import CircuitPart


class ConversationCircuitRecipe(ConversationRecipe):
    """Recipe of one or several MTPC drafters on the same batches, with the target's distributions computed once.

    Args:
        target: Frozen target that generated the conversations.
        conversations: Conversations of the training split.
        configs: Configuration of each drafter, by name.
        settings: Settings of the training.
        starts: Trained drafters. Each drafter of the same configuration as one of them starts from its weights, and one
            with LoRA layers also from the same drafter without them.
        states: Cache of hidden states, see `ConversationRecipe`.

    Raises:
        MTPCError: Leaves are too large for subwords, adapters need states that the cache lacks, or a drafter to start
            from has another configuration. Also if the drafters do not fit into memory, or no conversation can be used.
    """

    settings: ConversationCircuitSettings

    def __init__(
        self,
        target: FrozenTarget,
        conversations: Sequence[Conversation],
        configs: dict[str, MTPCConfig],
        settings: ConversationCircuitSettings,
        *,
        starts: Sequence[Drafter] = (),
        states: HiddenStateCache | None = None,
    ) -> None:
        self.configs, self.starts = configs, starts
        self.below = {config.lora.state_below for config in configs.values() if config.lora is not None}
        if self.below and states is not None:
            raise MTPCError("--states keeps the target's last hidden states only, so --lora-layers must be 0 with it.")
        if any(config.leaves == "table" for config in configs.values()):
            raise MTPCError(
                "--leaves table has an unembedding for each component, which is for bytes; use target or shared."
            )
        for start in starts:
            if not any(start.config in _continued(config) for config in configs.values()):
                raise MTPCError(
                    "the drafter to start from has another configuration than the drafters of this training; name one "
                    "of the same circuit, window and sizes, with the same LoRA layers or none."
                )
        with torch.device("meta"):
            check_training_memory((Drafter(MTPC(), config) for config in configs.values()), "these drafters")
        super().__init__(target, conversations, settings, states)

    def models(self) -> dict[str, Drafter]:
        """Return the drafters to continue from, or ones whose positions start as the target's output head."""
        unembedding, drafters = self.target.unembedding.cpu(), {}
        for name, config in self.configs.items():
            torch.manual_seed(self.settings.seed)
            Drafter.planned(MTPC(), config, f"the configuration of {name}")
            drafter = Drafter(MTPC(), config)
            trained = next(
                (start for same in _continued(config) for start in self.starts if start.config == same), None
            )
            if trained is None:
                initialize(part_of(drafter), unembedding)
            else:
                drafter.load_state_dict(trained.state_dict(), strict=trained.config == config)  # else without LoRA
            drafters[name] = self.target.bind(drafter.to(self.target.device, torch.float32))
        return drafters

    def optimizers(self, drafter: Drafter) -> list[torch.optim.Optimizer]:
        """Return optimizers for the matrices and for all other parameters, tables with a row per token among them."""
        settings, size = self.settings, drafter.config.vocab_size
        matrices = [each for each in drafter.parameters() if each.ndim == 2 and len(each) != size]
        others = [each for each in drafter.parameters() if each.ndim != 2 or len(each) == size]
        return make_optimizers(matrices, others, settings.optimizer, settings.learning_rate, settings.weight_decay)

    def weights(self, drafter: Drafter) -> Tensor:
        """Return the weights gamma^(j-1) of the positions of the circuit's window, and that of the balancing loss."""
        config = part_of(drafter).config
        positions = discounts(config.circuit_window, self.settings.discount(config.window), self.target.device)
        return torch.cat([positions, positions.new_tensor([self.settings.balance] * self._balances(drafter))])

    def _balances(self, drafter: Drafter) -> bool:
        return self.settings.balance > 0 and part_of(drafter).config.rank > 1

    def share(self, update: int, processes: Processes) -> TrainingBatch:
        """Return the windows of this process's conversations of one update."""
        batch = super().share(update, processes)
        windows = (WindowBatch.of(each, self.settings.loss == "kl") for each in batch.micro_batches)
        return TrainingBatch(batch.examples, windows)

    def losses(self, drafter: Drafter, windows: WindowBatch) -> Tensor:
        """Return the loss of every position, and the balancing loss where it is on."""
        part, weights, windows = part_of(drafter), self.weights(drafter), windows.read_by(drafter)
        losses, sums = circuit_losses(part, windows, weights[: part.config.circuit_window])
        if not self._balances(drafter):
            return losses
        return torch.cat([losses, len(windows.text) * balance_loss(part.circuit, sums)[None]])

    def data(self) -> dict[str, Any]:
        """Return counts and digests of the conversations, and the digests of the drafters to continue from."""
        return super().data() | {"start_sha256": [weights_digest(start) for start in self.starts]}

    def measure(self, drafter: Drafter) -> dict[str, float]:
        """Return the share of dead components and the entropy of the usage, averaged over positions."""
        if (usage := self._usage(drafter)) is None:
            return {}
        figures = usage.to_json()
        names = {"dead components": "dead_share", "usage entropy": "usage_entropy"}
        return {name: sum(figures[key]) / len(figures[key]) for name, key in names.items()}

    def facts(self, drafter: Drafter) -> dict[str, Any]:
        """Return the discount gamma, and the usage of the components on the first update's conversations."""
        usage, gamma = self._usage(drafter), self.settings.discount(part_of(drafter).config.window)
        return {"gamma": gamma} | ({} if usage is None else {"components": usage.to_json()})

    def _usage(self, drafter: Drafter) -> ComponentUsage | None:
        part = part_of(drafter)
        if not isinstance(part, CircuitPart) or part.config.rank == 1:
            return None
        of_batches: Iterator[ComponentUsage] = (
            component_usage(part, each.read_by(drafter)) for each in self.batch(0).micro_batches
        )
        usage = next(of_batches)
        for other in of_batches:
            usage = usage.plus(other)
        return usage


def _continued(config: MTPCConfig) -> tuple[MTPCConfig, MTPCConfig]:
    """Return the configurations that a drafter can start from, best first: its own, and that without LoRA layers."""
    return config, config.model_copy(update={"lora": None})


def initialize(part: Any, unembedding: Tensor) -> None:
    """Initialize a circuit or Markov head for training: unembedding [V, d] is the target's output head."""
    (part.head if isinstance(part, CircuitPart) else part).initialize(unembedding)
