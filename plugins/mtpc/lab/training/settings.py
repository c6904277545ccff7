"""Settings of each training, with the command line options that set them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Annotated, Literal

import typer

from mtpc.errors import MTPCError
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

Loss = Literal["ce", "kl"]
LearnFrom = Literal["answers", "all"]
OptimizerName = Literal["adamw", "muon"]

Seed = Annotated[
    int, typer.Option(min=0, max=MOST_SEED, help="Set the seed of the random weights and of the order of the text.")
]

Epochs = Annotated[int, typer.Option(min=1, max=10_000, help="Set the number of passes over the conversations.")]
BatchSize = Annotated[
    int,
    typer.Option(min=1, max=MOST_WIDTH, help="Set the size of an update, in conversations of average length."),
]
PeakRate = Annotated[
    float,
    typer.Option(
        min=LEAST_RATE,
        max=MOST_RATE,
        help="Set the peak learning rate. The rate warms up to it, then decays as a cosine to zero.",
    ),
]
CircuitRate = Annotated[
    float,
    typer.Option(
        min=LEAST_RATE,
        max=MOST_RATE,
        help="Set the peak learning rate. The rate warms up to it, stays there, then decays linearly; with --data it "
        "decays as a cosine.",
    ),
]
CircuitLoss = Annotated[
    Literal["nll", "kl"],
    typer.Option(
        help="Choose the loss: 'nll' (negative log-likelihood of the text, equation 4 of MTPC) or 'kl' "
        "(divergence from the target's distribution, equation 5)."
    ),
]
Gamma = Annotated[
    float | None,
    typer.Option(
        min=0.01,
        max=1,
        help="Weight the loss of position j by gamma^(j-1). Default: 0.8 for windows of at most 8 tokens, else 0.9.",
    ),
]
Balance = Annotated[
    float,
    typer.Option(
        min=0,
        max=1000,
        help="Weight a loss that keeps all components of a circuit in use (equation 10 of arXiv 2410.17765). Each "
        "process computes it of the texts that it reads at once.",
    ),
]
LossDecay = Annotated[
    float,
    typer.Option(
        min=0.001, max=1, help="Weight the loss of draft token k by beta^(k-1). 1 weights all tokens equally."
    ),
]


@dataclass(frozen=True)
class ConversationSettings(ABC):
    """Settings of every training on conversations.

    Attributes:
        epochs: Passes over the conversations.
        batch: Conversations of average length per update.
        learning_rate: Peak learning rate.
        warmup: Share of the updates in which the rate rises.
        weight_decay: Weight decay of the matrices.
        optimizer: "adamw" or "muon".
        loss: Name of the loss, see `mtpc.lab.training.head_loss.head_losses`.
        learn_from: "answers", or "all" for questions too.
        head_rows: Frequent tokens whose logits are computed; 0 for the whole vocabulary.
        context: Longest conversation, in tokens.
        starts: Share of the positions that each update trains on.
        micro_batch: Conversations that are computed at once.
        seed: Seed of the order of the conversations.

    Raises:
        MTPCError: The context is too short for the draft tokens.
    """

    epochs: Epochs
    batch: BatchSize
    learning_rate: PeakRate
    warmup: Annotated[
        float, typer.Option(min=0, max=0.99, help="Set the share of the updates in which the learning rate rises.")
    ] = 0.05
    weight_decay: Annotated[
        float, typer.Option(min=0, max=10, help="Set the weight decay of the matrices. Other parameters do not decay.")
    ] = 0.1
    optimizer: Annotated[
        OptimizerName,
        typer.Option(help="Choose the optimizer: 'adamw' as published, or 'muon' for fewer updates from scratch."),
    ] = "adamw"
    loss: str = "ce"
    learn_from: Annotated[
        LearnFrom,
        typer.Option(
            help="Train on 'answers' only, or on 'all': the questions too, for conversations whose questions the "
            "target generated."
        ),
    ] = "answers"
    head_rows: Annotated[
        int,
        typer.Option(
            min=0,
            max=MOST_WIDTH,
            help="Compute logits of this many frequent tokens only, plus a random sample of a quarter as many others. "
            "8192 saves about three quarters of the work. 0 computes the whole vocabulary.",
        ),
    ] = 0
    context: Annotated[
        int,
        typer.Option(
            min=3,
            max=MOST_TOKENS,
            help="Limit each conversation to this many tokens, and to the positions of the target. Longer ones are "
            "truncated.",
        ),
    ] = 1024
    starts: Annotated[
        float,
        typer.Option(
            min=0.001,
            max=1,
            help="Set the share of an answer's positions that an update trains on, a random run of consecutive ones. "
            "1 trains on all.",
        ),
    ] = 1.0
    micro_batch: Annotated[
        int,
        typer.Option(
            min=1,
            max=MOST_REQUESTS,
            help="Compute this many conversations at once. More need more memory; the result is the same, except with "
            "--balance.",
        ),
    ] = 1
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Set the seed of the order of the conversations.")] = 0

    @property
    @abstractmethod
    def drafts(self) -> int:
        """Draft tokens K per start."""

    def __post_init__(self) -> None:
        if self.context < self.drafts + 2:
            raise MTPCError(
                f"--context {self.context} is too short: {self.drafts} draft tokens need a context of at least "
                f"{self.drafts + 2} tokens."
            )


@dataclass(frozen=True)
class FastMTPSettings(ConversationSettings):
    """Settings of FastMTP.

    The defaults are those of arXiv 2509.18362 (section 3.1), except the context. Its authors continue from a layer that
    was trained with its target. One draft token trains a plain MTP head, their "vanilla MTP".

    Attributes:
        num_drafts: Draft tokens K, one per recursive step.
        beta: Decay of the loss weights (equation 2).
    """

    num_drafts: Annotated[
        int,
        typer.Option(
            min=1, max=MOST_DRAFTS, help="Set the number of draft tokens K, one per recursive step. 1 is plain MTP."
        ),
    ] = 3
    beta: LossDecay = 0.6
    epochs: Epochs = 3
    batch: BatchSize = 64
    learning_rate: PeakRate = 5e-5
    loss: Annotated[
        Loss,
        typer.Option(
            help="Choose the loss: 'ce' (cross-entropy, as in FastMTP) or 'kl' (divergence from the target's "
            "distribution)."
        ),
    ] = "ce"

    @property
    def drafts(self) -> int:
        """Draft tokens K, one per step."""
        return self.num_drafts


@dataclass(frozen=True)
class GumihoSettings(ConversationSettings):
    """Settings of Gumiho. The defaults are those of arXiv 2503.10135, table 5.

    Attributes:
        steps: Draft tokens of the autoregressive part.
        positions: Parallel heads, one draft token each.
        regression: Weight w_reg of the regression loss (appendix C).
        classification: Weight w_cls of the classification loss (appendix C).
        beta: Decay of the loss weights by draft position.
    """

    steps: Annotated[
        int, typer.Option(min=1, max=MOST_DRAFTS, help="Set the number of draft tokens of the autoregressive part.")
    ] = 2
    positions: Annotated[
        int, typer.Option(min=1, max=MOST_DRAFTS, help="Set the number of parallel heads, one draft token each.")
    ] = 5
    regression: Annotated[
        float,
        typer.Option(
            min=0, max=1000, help="Weight the regression loss: the smooth L1 distance from the target's hidden states."
        ),
    ] = 1.0
    classification: Annotated[
        float,
        typer.Option(
            min=0, max=1000, help="Weight the classification loss: the distance from the target's distributions."
        ),
    ] = 0.1
    beta: LossDecay = 1.0
    epochs: Epochs = 10
    batch: BatchSize = 4
    learning_rate: PeakRate = 2e-4
    loss: Annotated[
        Loss,
        typer.Option(
            help="Choose the classification loss: 'kl' (divergence from the target's distribution) or 'ce' "
            "(cross-entropy)."
        ),
    ] = "kl"

    @property
    def drafts(self) -> int:
        """Draft tokens of both parts, even for a drafter without heads."""
        return self.steps + self.positions


@dataclass(frozen=True)
class ByteCircuitSettings(ConversationSettings):
    """Settings of byte circuits.

    Attributes:
        num_drafts: Draft tokens K whose symbols are learned, where they lie in the window.
        beta: Decay of the loss weights by draft token.
    """

    num_drafts: Annotated[
        int, typer.Option(min=1, max=MOST_DRAFTS, help="Set the number of draft tokens K that are learned.")
    ] = 3
    beta: LossDecay = 0.8
    epochs: Epochs = 3
    batch: BatchSize = 4
    learning_rate: PeakRate = 2e-3
    weight_decay: float = 0.0
    head_rows: int = 0

    @property
    def drafts(self) -> int:
        """Draft tokens K."""
        return self.num_drafts


@dataclass(frozen=True)
class ConversationCircuitSettings(ConversationSettings):
    """Settings of MTPC on conversations of a target with subword tokens.

    Attributes:
        drafts: Most draft tokens of a drafter, the longest window without x_{t+1}.
        loss: "nll" (MTPC paper, equation 4) or "kl" (equation 5).
        gamma: Discount of the losses by position, see ``discount``.
        balance: Weight of the load-balancing loss (Basharin et al. 2025, equation 10).
    """

    drafts: int = 7
    loss: CircuitLoss = "nll"
    gamma: Gamma = None
    balance: Balance = 0.0
    epochs: Epochs = 3
    batch: BatchSize = 8
    learning_rate: CircuitRate = 2e-3
    seed: Seed = 0

    def discount(self, window: int) -> float:
        """Return gamma for a window of this many tokens, see `discount_for`."""
        return discount_for(window, self.gamma)


def discount_for(window: int, gamma: float | None) -> float:
    """Return gamma, or its default for a window of this many tokens (MTPC paper, footnote 8)."""
    return gamma if gamma is not None else (0.8 if window <= 8 else 0.9)


@dataclass(frozen=True)
class BatchShape:
    """Windows of an update.

    Attributes:
        texts: Texts per update.
        context: Context of each text, in tokens.
        positions: Positions of each text after which a window starts.
    """

    texts: Annotated[
        int, typer.Option(min=1, max=4096, help="Set the number of texts per update, of 512 tokens each.")
    ] = 4
    context: int = 512
    positions: Annotated[
        int, typer.Option(min=1, max=512, help="Set the number of positions per text after which a window starts.")
    ] = 128


@dataclass(frozen=True)
class CircuitSettings:
    """Settings of MTPC, with defaults for a byte-level target of a few million parameters on a CPU.

    The learning rate of arXiv 2511.11346, 3e-4 (section 4.1), is for models a thousand times larger.

    Attributes:
        updates: Number of updates.
        batch: Windows per update.
        learning_rate: Peak learning rate.
        warmup_updates: Updates in which the rate rises.
        loss: "nll" (equation 4) or "kl" (equation 5).
        gamma: Discount of the losses by position, see ``discount``.
        balance: Weight of the load-balancing loss (Basharin et al. 2025, equation 10).
        micro_batch: Positions whose leaf distributions are in memory at once.
        seed: Seed of the weights and of the order of the text.
    """

    updates: Annotated[
        int,
        typer.Option(min=1, max=MOST_UPDATES, help="Set the number of updates, of TEXTS x POSITIONS windows each."),
    ] = 1000
    batch: BatchShape = field(default_factory=BatchShape)
    learning_rate: CircuitRate = 2e-3
    warmup_updates: int = 50
    loss: CircuitLoss = "nll"
    gamma: Gamma = None
    balance: Balance = 0.0
    micro_batch: int = 64
    seed: Seed = 0

    def discount(self, window: int) -> float:
        """Return gamma for a window of this many tokens, see `discount_for`."""
        return discount_for(window, self.gamma)


@dataclass(frozen=True)
class ByteTargetConfig:
    """Architecture and training of the byte-level target. A token is one byte.

    Attributes:
        hidden_size: Hidden size d.
        layers: Transformer layers.
        heads: Attention heads.
        kv_heads: Key-value heads.
        mlp_size: Width of the MLPs.
        context: Longest context, in bytes.
        updates: Number of updates.
        tokens_per_update: Bytes per update.
        long_context_from: Share of the updates after which windows grow from half a context to a whole one.
        learning_rate: Peak learning rate.
        warmup: Updates in which the rate rises.
        decay_from: Share of the updates after which the rate falls.
        future_bytes: Bytes that the auxiliary loss predicts ahead.
        future_weight: Weight of the auxiliary loss.
        future_discount: Discount of the auxiliary loss per byte.
        future_stride: Distance of the positions that the auxiliary loss uses.
        seed: Seed of the weights and of the order of the text.

    Raises:
        MTPCError: Sizes do not fit together.
    """

    hidden_size: Annotated[
        int, typer.Option(min=1, max=MOST_WIDTH, help="Set the hidden size d, a multiple of --heads.")
    ] = 384
    layers: Annotated[int, typer.Option(min=1, max=256, help="Set the number of transformer layers.")] = 6
    heads: Annotated[
        int, typer.Option(min=1, max=1024, help="Set the number of attention heads, a multiple of --kv-heads.")
    ] = 4
    kv_heads: Annotated[int, typer.Option(min=1, max=1024, help="Set the number of key-value heads.")] = 2
    mlp_size: Annotated[int, typer.Option(min=1, max=MOST_WIDTH, help="Set the width of the MLPs.")] = 1024
    context: Annotated[int, typer.Option(min=128, max=MOST_WIDTH, help="Set the longest context, in bytes.")] = 1024
    updates: Annotated[int, typer.Option(min=1, max=MOST_UPDATES, help="Set the number of updates.")] = 800
    tokens_per_update: Annotated[
        int,
        typer.Option(min=128, max=1 << 30, help="Set the number of bytes per update, at least as many as --context."),
    ] = 16_384
    long_context_from: float = 0.8
    learning_rate: Annotated[
        float,
        typer.Option(
            min=LEAST_RATE,
            max=MOST_RATE,
            help="Set the peak learning rate. The rate warms up to it, stays there, then decays linearly.",
        ),
    ] = 3e-3
    warmup: Annotated[
        int, typer.Option(min=0, max=MOST_UPDATES, help="Set the number of updates in which the learning rate rises.")
    ] = 40
    decay_from: Annotated[
        float, typer.Option(min=0, max=1, help="Set the share of the updates after which the learning rate falls.")
    ] = 0.5
    future_bytes: Annotated[
        int, typer.Option(min=2, max=256, help="Set the number of bytes that the auxiliary loss predicts ahead.")
    ] = 16
    future_weight: Annotated[
        float, typer.Option(min=0, max=100, help="Weight the auxiliary loss. 0 trains on the next byte only.")
    ] = 0.15
    future_discount: float = 0.8
    future_stride: int = 4
    seed: Seed = 0

    def __post_init__(self) -> None:
        for larger, smaller in (("hidden_size", "heads"), ("heads", "kv_heads")):
            value, divisor = getattr(self, larger), getattr(self, smaller)
            if value % divisor:
                message = f"--{larger} {value} must be a multiple of --{smaller} {divisor}."
                raise MTPCError(message.replace("_", "-"))
        if self.tokens_per_update < self.context:
            raise MTPCError(f"--tokens-per-update {self.tokens_per_update} must be at least --context {self.context}.")

    @property
    def schedule(self) -> Schedule:
        """Warm-up, plateau, then linear decay to 2%."""
        decay_from = self.decay_from * self.updates
        return Schedule(self.learning_rate, self.updates, self.warmup, decay_from, "linear", floor=0.02)
