"""Trains one or several drafters side by side on the same batches of one frozen target."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mtpc.data.corpus import Corpus
from mtpc.drafter import Drafter, DrafterConfig, save_drafter
from mtpc.errors import MTPCError
from mtpc.targets.frozen import FrozenTarget
from mtpc.training.batches import Batch, BatchShape, training_batch
from mtpc.training.loss import discounts, distribution_losses, token_losses


@dataclass(frozen=True)
class TrainConfig:
    """The recipe; defaults for a byte-level target of a few million parameters on a CPU."""

    steps: int = 1000
    learning_rate: float = 2e-3  # the paper's 3e-4 suits models a thousand times larger
    warmup_steps: int = 50
    loss: str = "nll"  # "nll" (equation 4) or "kl" (equation 5)
    gamma: float | None = None  # None: the paper's 0.8 for windows up to 8, 0.9 beyond
    micro_batch: int = 64  # positions whose leaf distributions are in memory at once
    seed: int = 0
    batch: BatchShape = field(default_factory=BatchShape)

    def __post_init__(self) -> None:
        if self.loss not in ("nll", "kl"):
            raise MTPCError(f"the loss is 'nll' or 'kl', not {self.loss!r}.")
        if self.gamma is not None and not 0 < self.gamma <= 1:
            raise MTPCError(f"gamma must be in (0, 1], not {self.gamma}.")

    def discount(self, window: int) -> float:
        """gamma for a window (footnote 8 of the paper)."""
        return self.gamma if self.gamma is not None else (0.8 if window <= 8 else 0.9)

    def rate(self, step: int) -> float:
        """Warm-up, then linear decay to 5 % over the second half."""
        decay = max(0.0, 2 * step / self.steps - 1)
        return self.learning_rate * min(1.0, (step + 1) / self.warmup_steps) * (1 - 0.95 * decay)


@dataclass
class Apprentice:
    """A drafter in training."""

    name: str
    drafter: Drafter
    optimizer: torch.optim.Optimizer
    losses: list[float] = field(default_factory=list)


class Trainer:
    """Several drafters, one pass through the target per batch: equal data, equal order, a fair table.

    configs: a configuration by drafter name.  resume: a state file, written every ``save_every`` steps and
    continued from when it exists.
    """

    def __init__(
        self,
        target: FrozenTarget,
        corpus: Corpus,
        configs: dict[str, DrafterConfig],
        config: TrainConfig,
        resume: Path | None = None,
        save_every: int = 100,
    ) -> None:
        self.target, self.corpus, self.config = target, corpus, config
        self.resume, self.save_every = resume, save_every
        self.window = max(each.window for each in configs.values())
        self.apprentices = [self._apprentice(name, each) for name, each in configs.items()]
        self.step, self.seconds = 0, 0.0
        if resume is not None and resume.exists():
            self._restore(torch.load(resume, weights_only=True))

    def _apprentice(self, name: str, config: DrafterConfig) -> Apprentice:
        torch.manual_seed(self.config.seed)
        drafter = Drafter(config)
        drafter.head.initialise(self.target.unembedding.cpu())
        drafter.to(self.target.device)
        optimizer = torch.optim.Adam(drafter.parameters(), lr=self.config.learning_rate, betas=(0.9, 0.99))
        return Apprentice(name, drafter, optimizer)

    def run(self, progress: Callable[[int, dict[str, float]], None]) -> None:
        """Train to the last step; ``progress`` gets the step and each drafter's loss after every step."""
        tokens = self.corpus.tokens("train")
        started = time.monotonic() - self.seconds
        while self.step < self.config.steps:
            seed = (self.config.seed << 32) + self.step
            batch = training_batch(self.target, tokens, self.config.batch, self.window, seed)
            for apprentice in self.apprentices:
                apprentice.losses.append(self._learn(apprentice, batch))
            self.step += 1
            self.seconds = time.monotonic() - started
            progress(self.step, {each.name: each.losses[-1] for each in self.apprentices})
            if self.resume is not None and (self.step % self.save_every == 0 or self.step == self.config.steps):
                torch.save(self._state(), self.resume)

    def _learn(self, apprentice: Apprentice, batch: Batch) -> float:
        drafter, window = apprentice.drafter, apprentice.drafter.config.window
        for group in apprentice.optimizer.param_groups:
            group["lr"] = self.config.rate(self.step)
        weights = discounts(drafter.config.circuit_window, self.config.discount(window), self.target.device)
        total, examples = 0.0, len(batch.hidden)
        for part in zip(*(tensor.split(self.config.micro_batch) for tensor in batch), strict=True):
            hidden, windows, target_logits = part
            with torch.autocast(self.target.device.type, torch.bfloat16):
                if self.config.loss == "kl":
                    losses = distribution_losses(drafter, hidden, windows[:, :window], target_logits[:, :window])
                else:
                    losses = token_losses(drafter, hidden, windows[:, :window])
            loss = (losses.sum(0) * weights).sum() / examples
            loss.backward()
            total += loss.item()
        if not math.isfinite(total):
            raise FloatingPointError(f"the loss of {apprentice.name} became {total} at step {self.step}")
        nn.utils.clip_grad_norm_(drafter.parameters(), 1.0)
        apprentice.optimizer.step()
        apprentice.optimizer.zero_grad(set_to_none=True)
        return total

    def _state(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "seconds": self.seconds,
            "configs": {each.name: asdict(each.drafter.config) for each in self.apprentices},
            "drafters": {each.name: each.drafter.state_dict() for each in self.apprentices},
            "optimizers": {each.name: each.optimizer.state_dict() for each in self.apprentices},
            "losses": {each.name: each.losses for each in self.apprentices},
        }

    def _restore(self, state: dict[str, Any]) -> None:
        configs = {each.name: asdict(each.drafter.config) for each in self.apprentices}
        if state["configs"] != configs:
            raise MTPCError(
                f"{self.resume} belongs to other drafters ({', '.join(state['configs'])}); name another file."
            )
        for each in self.apprentices:
            each.drafter.load_state_dict(state["drafters"][each.name])
            each.optimizer.load_state_dict(state["optimizers"][each.name])
            each.losses = state["losses"][each.name]
        self.step, self.seconds = state["step"], state["seconds"]

    def save(self, out: Path, facts: dict[str, Any], results: dict[str, dict[str, Any]]) -> list[Path]:
        """Write every drafter to ``out/NAME``.

        provenance.json gets the recipe, ``facts`` and the drafter's entry of ``results`` (its acceptance).
        """
        folders = []
        for each in self.apprentices:
            recipe = {
                **asdict(self.config),
                "gamma": self.config.discount(each.drafter.config.window),
                "corpus_sha256": self.corpus.digest(),
                "final_loss": sum(each.losses[-20:]) / len(each.losses[-20:]),
                "seconds_all_drafters": self.seconds,
            }
            acceptance = results[each.name]
            save_drafter(out / each.name, each.drafter, {**facts, "training": recipe, "heldout_acceptance": acceptance})
            folders.append(out / each.name)
        return folders
