"""How circuits are trained (MTPC paper, section 4.1): one or several side by side, on windows of a corpus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.text.corpus import Corpus
from mtpc.lab.training.optimizers import make_optimizers
from mtpc.lab.training.recipe import Batch, DrafterRecipe
from mtpc.lab.training.recipes.mtpc_batches import Windows, training_windows
from mtpc.lab.training.recipes.mtpc_loss import discounts, distribution_losses, token_losses
from mtpc.lab.training.schedule import Schedule
from mtpc.lab.training.settings import CircuitSettings
from mtpc.memory import check_training_memory
from mtpc.methods.drafter import Drafter
from mtpc.methods.mtpc import MTPC, MTPCConfig
from mtpc.parallel.circuit_part import CircuitPart


class CircuitRecipe(DrafterRecipe):
    """Several circuits, one pass through the target per batch: equal data, equal order, a fair table.

    configs: a configuration by drafter name.
    """

    def __init__(
        self, target: FrozenTarget, corpus: Corpus, configs: dict[str, MTPCConfig], settings: CircuitSettings
    ) -> None:
        self.target, self.corpus, self.configs, self.settings = target, corpus, configs, settings
        self.window = max(config.window for config in configs.values())
        self.tokens = corpus.training_tokens(settings.batch.context + self.window, target.facts.vocab_size)

    @property
    def schedule(self) -> Schedule:
        """Warm-up, constant, then linear decay to 5 % over the second half."""
        settings = self.settings
        half = settings.updates / 2
        return Schedule(settings.learning_rate, settings.updates, settings.warmup_updates, half, "linear", 0.05)

    def models(self) -> dict[str, Drafter]:
        """Leaves that start as the target's own output head, everything else at random."""
        with torch.device("meta"):
            check_training_memory((Drafter(MTPC(), config) for config in self.configs.values()), "these drafters")
        unembedding, started = self.target.unembedding.cpu(), {}
        for name, config in self.configs.items():
            torch.manual_seed(self.settings.seed)
            Drafter.planned(MTPC(), config, f"the configuration of {name}")
            drafter = Drafter(MTPC(), config)
            circuit_of(drafter).head.initialize(unembedding)
            started[name] = drafter.to(self.target.device)
        return started

    def optimizers(self, drafter: Drafter) -> list[torch.optim.Optimizer]:
        """Adam: no weight decays."""
        rate = self.settings.learning_rate
        return make_optimizers([], list(drafter.parameters()), "adamw", rate, 0.0, betas=(0.9, 0.99))

    def weights(self, drafter: Drafter) -> Tensor:
        """Of the positions of the circuit's window, by powers of gamma."""
        window = circuit_of(drafter).config
        return discounts(window.circuit_window, self.settings.discount(window.window), self.target.device)

    def batch(self, update: int) -> Batch:
        """Random texts of the corpus and random positions in them."""
        seed = (self.settings.seed << 32) + update
        windows = training_windows(self.target, self.tokens, self.settings.batch, self.window, seed)
        return Batch(len(windows.hidden), self._parts(windows))

    def _parts(self, windows: Windows) -> Iterator[Windows]:
        split = (tensor.split(self.settings.micro_batch) for tensor in windows)
        return (Windows(*part) for part in zip(*split, strict=True))

    def losses(self, drafter: Drafter, part: Windows) -> Tensor:
        """Equation 4 or 5, over each drafter's own window."""
        circuit = circuit_of(drafter)
        window = circuit.config.window
        if self.settings.loss == "kl":
            losses = distribution_losses(circuit, part.hidden, part.tokens[:, :window], part.logits[:, :window])
        else:
            losses = token_losses(circuit, part.hidden, part.tokens[:, :window])
        return losses.sum(0)

    def data(self) -> dict[str, Any]:
        """The corpus."""
        return {"corpus_sha256": self.corpus.digest()}

    def facts(self, drafter: Drafter) -> dict[str, Any]:
        """The gamma that was used."""
        return {"gamma": self.settings.discount(circuit_of(drafter).config.window)}


def circuit_of(drafter: Drafter) -> CircuitPart:
    """The circuit of an MTPC drafter."""
    assert isinstance(drafter.parallel, CircuitPart)
    return drafter.parallel
