"""Recipe of circuits, one or several at once, trained on windows of a corpus (MTPC paper, section 4.1)."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from mtpc.errors import MTPCError
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.text.corpus import Corpus
from mtpc.lab.training.load_balance import balance_loss
from mtpc.lab.training.optimizers import make_optimizers
from mtpc.lab.training.recipe import DrafterRecipe, TrainingBatch
from mtpc.lab.training.recipes.mtpc_batches import TrainingWindows, training_windows
from mtpc.lab.training.recipes.mtpc_loss import discounts, distribution_losses, token_losses
from mtpc.lab.training.schedule import Schedule
from mtpc.lab.training.settings import CircuitSettings
from mtpc.memory import check_training_memory
from mtpc.methods.drafter import Drafter
from mtpc.methods.mtpc import MTPC, MTPCConfig
from mtpc.parallel.circuit_part import CircuitPart


class CircuitRecipe(DrafterRecipe):
    """Recipe of one or several circuits on the same batches, with one target forward pass per batch.

    Adapters of the target's last layers are trained together with their circuit (MTPC paper, section 4.4).

    Args:
        target: Frozen target.
        corpus: Text to train on.
        configs: Configuration of each drafter, by name.
        settings: Settings of the training.

    Raises:
        MTPCError: The corpus is too small or belongs to another target, the target reads too few tokens, or the leaves
            are the target's output head, which takes conversations.
    """

    def __init__(
        self, target: FrozenTarget, corpus: Corpus, configs: dict[str, MTPCConfig], settings: CircuitSettings
    ) -> None:
        self.target, self.corpus, self.configs = target, corpus, configs
        self.below = {config.lora.state_below for config in configs.values() if config.lora is not None}
        self.window = max(config.window for config in configs.values())
        if any(config.leaves == "target" for config in configs.values()):
            raise MTPCError("--leaves target trains on conversations only: add --data.")
        context = min(settings.batch.context, target.max_positions - self.window)
        if context < 1:
            most = target.max_positions
            raise MTPCError(f"{target.folder} reads {most} tokens, too few for windows of {self.window}.")
        positions = min(settings.batch.positions, context)
        batch = dataclasses.replace(settings.batch, context=context, positions=positions)
        self.settings = dataclasses.replace(settings, batch=batch)
        self.tokens = corpus.training_tokens(batch.context + self.window, target.facts.vocab_size)

    @property
    def schedule(self) -> Schedule:
        """Warm-up, plateau, then linear decay to 5% over the second half."""
        settings = self.settings
        half = settings.updates / 2
        return Schedule(settings.learning_rate, settings.updates, settings.warmup_updates, half, "linear", 0.05)

    def models(self) -> dict[str, Drafter]:
        """Return circuits with leaves from the target's output head, adapters without effect, and random other weights.

        Raises:
            MTPCError: The drafters do not fit into memory.
        """
        with torch.device("meta"):
            check_training_memory((Drafter(MTPC(), config) for config in self.configs.values()), "these drafters")
        unembedding, drafters = self.target.unembedding.cpu(), {}
        for name, config in self.configs.items():
            torch.manual_seed(self.settings.seed)
            Drafter.planned(MTPC(), config, f"the configuration of {name}")
            drafter = Drafter(MTPC(), config)
            circuit_of(drafter).head.initialize(unembedding)
            drafters[name] = self.target.bind(drafter.to(self.target.device))
        return drafters

    def optimizers(self, drafter: Drafter) -> list[torch.optim.Optimizer]:
        """Return Adam without weight decay."""
        rate = self.settings.learning_rate
        return make_optimizers([], list(drafter.parameters()), "adamw", rate, 0.0, betas=(0.9, 0.99))

    def weights(self, drafter: Drafter) -> Tensor:
        """Return the weights gamma^(j-1) of the positions of the circuit's window, and that of the balancing loss."""
        config = circuit_of(drafter).config
        positions = discounts(config.circuit_window, self.settings.discount(config.window), self.target.device)
        return torch.cat([positions, positions.new_tensor([self.settings.balance] * self._balances(drafter))])

    def _balances(self, drafter: Drafter) -> bool:
        return self.settings.balance > 0 and circuit_of(drafter).config.rank > 1

    def batch(self, update: int) -> TrainingBatch:
        """Return windows after random positions of random texts of the corpus."""
        seed = (self.settings.seed << 32) + update
        windows = training_windows(self.target, self.tokens, self.settings.batch, self.window, seed, self.below)
        return TrainingBatch(len(windows.hidden), windows.split(self.settings.micro_batch))

    def losses(self, drafter: Drafter, windows: TrainingWindows) -> Tensor:
        """Return the losses of the MTPC paper's equation 4 or 5 over the drafter's window, and the balancing loss."""
        circuit = circuit_of(drafter)
        window, hidden = circuit.config.window, windows.read_by(drafter)
        if self.settings.loss == "kl":
            losses = distribution_losses(circuit, hidden, windows.tokens[:, :window], windows.logits[:, :window])
        else:
            losses = token_losses(circuit, hidden, windows.tokens[:, :window])
        if not self._balances(drafter):
            return losses.sum(0)
        _, sums = circuit.head.features(hidden, windows.tokens[:, 0])
        return torch.cat([losses.sum(0), len(hidden) * balance_loss(circuit.circuit, sums)[None]])

    def data(self) -> dict[str, Any]:
        """Return the digest of the corpus."""
        return {"corpus_sha256": self.corpus.digest()}

    def facts(self, drafter: Drafter) -> dict[str, Any]:
        """Return the discount gamma."""
        return {"gamma": self.settings.discount(circuit_of(drafter).config.window)}


def circuit_of(drafter: Drafter) -> CircuitPart:
    """Return the circuit of an MTPC drafter."""
    assert isinstance(drafter.parallel, CircuitPart)
    return drafter.parallel
