"""Trains an MTP layer on conversations of its frozen target (FastMTP paper, sections 2.1 and 3.1)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from mtpc.distill.conversations import Conversation
from mtpc.errors import MTPCError
from mtpc.fastmtp.batches import LearnFrom, collate, epoch_batches
from mtpc.fastmtp.config import config_for
from mtpc.fastmtp.head import SharedHead
from mtpc.fastmtp.layer import MTPLayer
from mtpc.fastmtp.loss import Loss, step_losses, step_weights
from mtpc.fastmtp.sampled_head import RowSampler
from mtpc.fastmtp.start import start_from_target
from mtpc.fastmtp.unroll import Attention
from mtpc.optimizers import Kind, make_optimizers
from mtpc.targets.frozen import FrozenTarget


@dataclass(frozen=True)
class TrainConfig:
    """The recipe; the defaults are the paper's, which goes on from a layer that was trained with its target."""

    steps: int = 3  # K; 1 trains the head of plain MTP, which is then reused (the paper's "vanilla")
    beta: float = 0.6  # alpha_k is proportional to beta^(k - 1)
    epochs: int = 3
    batch: int = 64  # conversations of average length
    learning_rate: float = 5e-5
    warmup: float = 0.05  # share of all updates
    weight_decay: float = 0.1
    optimizer: Kind = "adamw"
    attention: Attention = "served"
    loss: Loss = "ce"
    learn_from: LearnFrom = "answers"
    head_rows: int = 0  # rows of the output head that each loss reads, the most frequent tokens', and a sample; 0: all
    context: int = 1024  # tokens of a conversation that are read, at most
    micro_batch: int = 1  # conversations that are computed at once
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "epochs", "batch", "micro_batch"):
            if getattr(self, name) < 1:
                raise MTPCError(f"{name} must be at least 1, not {getattr(self, name)}.")
        if self.head_rows < 0:
            raise MTPCError(f"head_rows must be 0 (all) or more, not {self.head_rows}.")
        if not 0 < self.beta <= 1:
            raise MTPCError(f"beta must be in (0, 1], not {self.beta:g}.")
        if not 0 <= self.warmup < 1 or not self.learning_rate > 0 or self.weight_decay < 0:
            raise MTPCError("learning_rate must be positive, warmup in [0, 1) and weight_decay not negative.")
        if self.context < self.steps + 2:
            raise MTPCError(f"context must be at least {self.steps + 2} tokens for {self.steps} steps.")
        for name, kind in (("attention", Attention), ("loss", Loss), ("optimizer", Kind), ("learn_from", LearnFrom)):
            if getattr(self, name) not in get_args(kind):
                raise MTPCError(f"{name} is {' or '.join(map(repr, get_args(kind)))}, not {getattr(self, name)!r}.")

    def rate(self, update: int, updates: int) -> float:
        """Linear warm-up, then a cosine to zero: of update 0..updates - 1."""
        warm = max(1, round(self.warmup * updates))
        if update < warm:
            return self.learning_rate * (update + 1) / warm
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * (update - warm) / max(1, updates - warm)))


class Trainer:
    """A layer in training.

    conversations: those of the training split.  start: a layer to go on from; None: the target's own last layer.
    resume: a state file, written every ``save_every`` updates and taken up when it exists.  keep_states: hold the
    target's states of every conversation in memory (2 d bytes a token in bfloat16), so that it reads each only once.

    Errors: `MTPCError` for a target of a kind that no layer computes, too few conversations, or a state of another run.
    """

    def __init__(
        self,
        target: FrozenTarget,
        conversations: Sequence[Conversation],
        config: TrainConfig,
        *,
        start: MTPLayer | None = None,
        resume: Path | None = None,
        save_every: int = 20,
        keep_states: bool = False,
    ) -> None:
        self.target, self.config, self.resume, self.save_every = target, config, resume, save_every
        self._kept: dict[int, Tensor] | None = {} if keep_states else None
        long_enough = config.context - config.steps - 1  # the last start that counts lies before it
        self.conversations = [
            each for each in conversations if each.start <= min(long_enough, len(each.tokens) - config.steps - 1)
        ]
        if not self.conversations:
            raise MTPCError(f"no conversation has an answer within {config.context} tokens to train on.")
        lengths = [min(len(each.tokens), config.context) for each in self.conversations]
        epochs = (epoch_batches(lengths, config.batch, epoch, config.seed) for epoch in range(config.epochs))
        self._plan = [batch for epoch in epochs for batch in epoch]  # conversations of each update
        self.head = SharedHead.of(target.model)
        rows = config.head_rows
        self.sampler = RowSampler.of(self.head, self.conversations, rows, config.seed) if rows else None
        self.layer = MTPLayer(config_for(target.model.config, config.steps))
        if start is None:
            start_from_target(self.layer, target.model)
        else:
            self.layer.load_state_dict(start.state_dict())
        self.layer.to(target.device, torch.float32).train()
        matrices = [p for p in self.layer.parameters() if p.ndim > 1]
        others = [p for p in self.layer.parameters() if p.ndim == 1]  # norms and biases
        self.optimizers = make_optimizers(matrices, others, config.optimizer, config.learning_rate, config.weight_decay)
        self.update, self.seconds = 0, 0.0
        self.losses: list[list[float]] = []  # by update: each step's mean over its starts
        if resume is not None and resume.exists():
            self._restore(torch.load(resume, weights_only=True))

    @property
    def updates(self) -> int:
        """Optimizer steps in all."""
        return len(self._plan)

    def run(self, progress: Callable[[int, list[float]], None]) -> None:
        """Train to the end; ``progress`` gets the number of the update and the loss of each step."""
        started = time.monotonic() - self.seconds
        while self.update < self.updates:
            self.losses.append(self._learn([self.conversations[i] for i in self._plan[self.update]]))
            self.update += 1
            self.seconds = time.monotonic() - started
            progress(self.update, self.losses[-1])
            if self.resume is not None and (self.update % self.save_every == 0 or self.update == self.updates):
                self._save_state(self.resume)

    def _learn(self, conversations: list[Conversation]) -> list[float]:
        config = self.config
        rate = config.rate(self.update, self.updates)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
        alpha = torch.tensor(step_weights(config.steps, config.beta), device=self.target.device)
        parts = range(0, len(conversations), config.micro_batch)
        rows = [conversations[i : i + config.micro_batch] for i in parts]
        batches = [collate(each, config.steps, config.context, config.learn_from) for each in rows]
        examples = sum(int(batch.chosen.sum()) for batch in batches)
        total = torch.zeros(config.steps)
        for part, (some, (tokens, chosen)) in enumerate(zip(rows, batches, strict=True)):
            head = self.head if self.sampler is None else self.sampler.sample(tokens, self.update, part)
            tokens, chosen = tokens.to(self.target.device), chosen.to(self.target.device)
            hidden = self._states(some, tokens)
            with torch.autocast(self.target.device.type, torch.bfloat16):
                losses = step_losses(
                    self.layer, head, hidden, tokens, chosen, config.steps, config.attention, config.loss
                )
            ((losses * alpha).sum() / examples).backward()
            total += losses.detach().cpu() / examples
        if not torch.isfinite(total).all():
            raise FloatingPointError(f"the loss became {total.tolist()} at update {self.update}")
        nn.utils.clip_grad_norm_(self.layer.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return total.tolist()

    def _states(self, conversations: list[Conversation], tokens: Tensor) -> Tensor:
        """The target's states of tokens [B, L]: [B, L, d]; what is padding may be anything."""
        kept = self._kept
        if kept is None:
            return self.target.hidden(tokens)
        if any(each.index not in kept for each in conversations):
            hidden = self.target.hidden(tokens)
            for each, row in zip(conversations, hidden, strict=True):
                kept[each.index] = row[: len(each.tokens)].clone()
            return hidden
        hidden = pad_sequence([kept[each.index] for each in conversations], batch_first=True)
        return F.pad(hidden, (0, 0, 0, tokens.shape[1] - hidden.shape[1]))

    def _identity(self) -> dict[str, Any]:
        return {"recipe": asdict(self.config), "layer": asdict(self.layer.config), "updates": self.updates}

    def _save_state(self, path: Path) -> None:
        state = {
            **self._identity(),
            "update": self.update,
            "seconds": self.seconds,
            "losses": self.losses,
            "weights": self.layer.state_dict(),
            "optimizers": [each.state_dict() for each in self.optimizers],
        }
        unfinished = path.with_name(path.name + ".new")
        torch.save(state, unfinished)
        unfinished.replace(path)

    def _restore(self, state: dict[str, Any]) -> None:
        for name, value in self._identity().items():
            if state.get(name) != value:
                raise MTPCError(f"{self.resume} belongs to another training (its {name} differs); name another file.")
        self.layer.load_state_dict(state["weights"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.update, self.seconds, self.losses = state["update"], state["seconds"], state["losses"]

    def facts(self) -> dict[str, Any]:
        """What provenance.json says of the training."""
        last = self.losses[-20:]
        return {
            **asdict(self.config),
            "updates": self.updates,
            "conversations": len(self.conversations),
            "tokens": sum(len(each.tokens[: self.config.context]) for each in self.conversations),
            "final_losses": [sum(step) / len(last) for step in zip(*last, strict=True)],
            "seconds": round(self.seconds, 1),
        }
