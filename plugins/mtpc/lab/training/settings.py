"""What can be chosen of each training, and the option of the command line that chooses it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Annotated, Literal

import typer

from mtpc.errors import MTPCError
from mtpc.lab.evaluation.attention import Attention
from mtpc.lab.options.numbers import (
    LEAST_RATE,
    MOST_DRAFTS,
    MOST_RATE,
    MOST_REQUESTS,
    MOST_SEED,
    MOST_TOKENS,
    MOST_UPDATES,
    MOST_WIDTH,
)
from mtpc.lab.training.schedule import Schedule

Loss = Literal["ce", "kl", "lk"]
LearnFrom = Literal["answers", "all"]
OptimizerName = Literal["adamw", "muon"]

Seed = Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Seed of the weights and of the order of the text.")]

Epochs = Annotated[int, typer.Option(min=1, max=10_000, help="Passes over the conversations.")]
BatchSize = Annotated[int, typer.Option(min=1, max=MOST_WIDTH, help="Conversations of average length in an update.")]
PeakRate = Annotated[
    float, typer.Option(min=LEAST_RATE, max=MOST_RATE, help="Peak rate: warm-up, then a cosine to zero.")
]
LossDecay = Annotated[float, typer.Option(min=0.001, max=1, help="The loss of draft k weighs beta^(k-1).")]


@dataclass(frozen=True)
class ConversationSettings(ABC):
    """Of every training on conversations."""

    epochs: Epochs
    batch: BatchSize
    learning_rate: PeakRate
    warmup: Annotated[float, typer.Option(min=0, max=0.99, help="Share of the updates that the rate rises in.")] = 0.05
    weight_decay: Annotated[float, typer.Option(min=0, max=10, help="Of the matrices.")] = 0.1
    optimizer: Annotated[
        OptimizerName, typer.Option(help="'adamw' (the paper's), or 'muon', which from scratch needs fewer updates.")
    ] = "adamw"
    loss: Loss = "ce"
    learn_from: Annotated[
        LearnFrom, typer.Option(help="'answers', or 'all': the questions too, where the target wrote them.")
    ] = "answers"
    head_rows: Annotated[
        int,
        typer.Option(
            min=0,
            max=MOST_WIDTH,
            help="Train on logits of this many frequent tokens and a random quarter as many others, which stand for "
            "the rest: some four times less work at 8192. 0: on all.",
        ),
    ] = 0
    context: Annotated[
        int, typer.Option(min=3, max=MOST_TOKENS, help="Tokens of a conversation that are read, at most.")
    ] = 1024
    starts: Annotated[
        float,
        typer.Option(
            min=0.001,
            max=1,
            help="Share of an answer's positions that an update learns from, a run of neighbours drawn at random.",
        ),
    ] = 1.0
    micro_batch: Annotated[
        int, typer.Option(min=1, max=MOST_REQUESTS, help="Conversations that are computed at once.")
    ] = 1
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Seed of the order of the conversations.")] = 0

    @property
    @abstractmethod
    def drafts(self) -> int:
        """K, drafts of one start."""

    def __post_init__(self) -> None:
        if self.context < self.drafts + 2:
            raise MTPCError(f"context must be at least {self.drafts + 2} tokens for {self.drafts} drafts.")


@dataclass(frozen=True)
class FastMTPSettings(ConversationSettings):
    """Of FastMTP.

    The defaults, but attention and context, are the paper's, which goes on from a layer that was trained with its
    target.  One draft trains the head of plain MTP, which is then reused (the paper's "vanilla").
    """

    num_drafts: Annotated[
        int, typer.Option(min=1, max=MOST_DRAFTS, help="Drafts K, one for each recursive step; 1 is plain MTP.")
    ] = 3
    beta: LossDecay = 0.6
    attention: Annotated[
        Attention,
        typer.Option(help="What a step attends to: 'served', as in an engine, or 'paper', as in its training."),
    ] = "served"
    epochs: Epochs = 3
    batch: BatchSize = 64
    learning_rate: PeakRate = 5e-5
    loss: Annotated[
        Loss,
        typer.Option(help="'ce' (the paper's), 'kl' to the target's distribution, or 'lk', -log of what it accepts."),
    ] = "ce"

    @property
    def drafts(self) -> int:
        """One of each step."""
        return self.num_drafts


@dataclass(frozen=True)
class GumihoSettings(ConversationSettings):
    """Of Gumiho; the defaults are those of the paper's table 5."""

    steps: Annotated[int, typer.Option(min=1, max=MOST_DRAFTS, help="Drafts of the autoregressive part.")] = 2
    positions: Annotated[int, typer.Option(min=1, max=MOST_DRAFTS, help="Heads in parallel, one draft each.")] = 5
    regression: Annotated[
        float, typer.Option(min=0, max=1000, help="Weight of the distance from the target's states (smooth L1).")
    ] = 1.0
    classification: Annotated[
        float, typer.Option(min=0, max=1000, help="Weight of the distance from the target's distributions.")
    ] = 0.1
    beta: LossDecay = 1.0
    epochs: Epochs = 10
    batch: BatchSize = 4
    learning_rate: PeakRate = 2e-4
    loss: Annotated[
        Loss,
        typer.Option(help="'kl' to the target's distribution, 'ce' of its token, or 'lk', -log of what it accepts."),
    ] = "kl"

    @property
    def drafts(self) -> int:
        """Those of both parts, also of a drafter without heads."""
        return self.steps + self.positions


@dataclass(frozen=True)
class BatchShape:
    """Windows of an update: texts, the context of each in tokens, and positions of each that windows start after."""

    texts: Annotated[
        int, typer.Option(min=1, max=4096, help="Texts of 512 tokens that the target reads for an update.")
    ] = 4
    context: int = 512
    positions: Annotated[
        int, typer.Option(min=1, max=512, help="Positions of each text that a window starts after.")
    ] = 128


@dataclass(frozen=True)
class CircuitSettings:
    """Of MTPC; defaults for a byte-level target of a few million parameters on a CPU.

    The paper's learning rate, 3e-4, suits models a thousand times larger.
    """

    updates: Annotated[
        int, typer.Option(min=1, max=MOST_UPDATES, help="Updates, of TEXTS x POSITIONS windows each.")
    ] = 1000
    batch: BatchShape = field(default_factory=BatchShape)
    learning_rate: Annotated[
        float, typer.Option(min=LEAST_RATE, max=MOST_RATE, help="Peak rate: warm-up, constant, linear decay.")
    ] = 2e-3
    warmup_updates: int = 50  # in which the rate rises
    loss: Annotated[
        Literal["nll", "kl"], typer.Option(help="Of the text (paper, eq. 4), or to the target's distribution (eq. 5).")
    ] = "nll"
    gamma: Annotated[
        float | None, typer.Option(min=0.01, max=1, help="Discount; default 0.8 for n <= 8, else 0.9.")
    ] = None
    micro_batch: int = 64  # positions whose leaf distributions are in memory at once
    seed: Seed = 0

    def discount(self, window: int) -> float:
        """Gamma for a window (footnote 8 of the paper)."""
        return self.gamma if self.gamma is not None else (0.8 if window <= 8 else 0.9)


@dataclass(frozen=True)
class ByteTargetConfig:
    """Architecture and training of the byte-level target; lengths in bytes, one token each."""

    hidden_size: Annotated[
        int, typer.Option(min=1, max=MOST_WIDTH, help="Hidden size d; a multiple of the number of heads.")
    ] = 384
    layers: Annotated[int, typer.Option(min=1, max=256, help="Transformer layers.")] = 6
    heads: Annotated[int, typer.Option(min=1, max=1024, help="Attention heads; a multiple of --kv-heads.")] = 4
    kv_heads: Annotated[int, typer.Option(min=1, max=1024, help="Key-value heads.")] = 2
    mlp_size: Annotated[int, typer.Option(min=1, max=MOST_WIDTH, help="Width inside the MLPs.")] = 1024
    context: Annotated[int, typer.Option(min=128, max=MOST_WIDTH, help="Longest context, in bytes.")] = 1024
    updates: Annotated[int, typer.Option(min=1, max=MOST_UPDATES, help="Updates of the weights.")] = 800
    tokens_per_update: Annotated[
        int, typer.Option(min=128, max=1 << 30, help="Bytes in one update, at least one context.")
    ] = 16_384
    long_context_from: float = 0.8  # share of the updates after which windows grow from context/2 to context
    learning_rate: Annotated[
        float, typer.Option(min=LEAST_RATE, max=MOST_RATE, help="Peak rate; warm-up, constant, linear decay.")
    ] = 3e-3
    warmup: Annotated[int, typer.Option(min=0, max=MOST_UPDATES, help="Updates of the warm-up.")] = 40
    decay_from: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the updates after which the rate falls.")
    ] = 0.5
    future_bytes: Annotated[int, typer.Option(min=2, max=256, help="How far ahead the auxiliary loss looks.")] = 16
    future_weight: Annotated[float, typer.Option(min=0, max=100, help="Weight of the auxiliary loss.")] = 0.15
    future_discount: float = 0.8
    future_stride: int = 4  # the auxiliary loss is taken at every fourth position
    seed: Seed = 0

    def __post_init__(self) -> None:
        for larger, smaller in (("hidden_size", "heads"), ("heads", "kv_heads")):
            if getattr(self, larger) % getattr(self, smaller):
                raise MTPCError(f"{larger} must be a multiple of {smaller}, but is {getattr(self, larger)}.")
        if self.tokens_per_update < self.context:
            raise MTPCError(f"tokens_per_update must be at least the context, {self.context}.")

    @property
    def schedule(self) -> Schedule:
        """Warm-up, constant, then linear decay to 2 %."""
        decay_from = self.decay_from * self.updates
        return Schedule(self.learning_rate, self.updates, self.warmup, decay_from, "linear", floor=0.02)
