"""Base recipe of drafters trained on conversations of their frozen target: data, batches, optimizers and schedule."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection, Iterator, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from mtpc.errors import MTPCError
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.text.conversations import Conversation, check_tokens
from mtpc.lab.training.conversation_batches import collate, epoch_batches, sample_starts
from mtpc.lab.training.hidden_states import HiddenStateCache
from mtpc.lab.training.optimizers import make_optimizers
from mtpc.lab.training.processes import Processes
from mtpc.lab.training.recipe import DrafterRecipe, TrainingBatch
from mtpc.lab.training.sampled_head import RowSampler
from mtpc.lab.training.schedule import Schedule
from mtpc.lab.training.settings import ConversationSettings
from mtpc.methods.drafter import Drafter
from mtpc.target_head.shared import SharedHead


class MicroBatch(NamedTuple):
    """Conversations that are computed at once.

    Attributes:
        hidden: Hidden states of the target after its final norm, [B, L, d].
        tokens: Token ids, int64 [B, L].
        chosen: Mask of the starts to train on, bool [B, L - K - 1].
        head: Output head of the target, or a sample of its rows.
        below: States that enter a layer of the target, [B, L, d], by the layer's number (`ConversationRecipe.below`).
    """

    hidden: Tensor
    tokens: Tensor
    chosen: Tensor
    head: SharedHead
    below: dict[int, Tensor] = MappingProxyType({})  # type: ignore[assignment]  # nothing writes to it


class ConversationRecipe(DrafterRecipe):
    """Recipe of a drafter that reads hidden states of whole conversations.

    Every chosen position of a conversation is an example.

    Attributes:
        below: Layers of the target whose input states are needed as well; then there is no cache of hidden states.

    Args:
        target: Frozen target that generated the conversations.
        conversations: Conversations of the training split.
        settings: Settings of the training.
        states: Cache of the target's hidden states. None computes them anew in every update.
        start: Trained drafter to continue from. None starts from the target's last layers.

    Raises:
        MTPCError: No conversation is long enough, they belong to another target, or the cache has too little space.
    """

    save_every = 20
    below: Collection[int] = ()
    settings: ConversationSettings

    def __init__(
        self,
        target: FrozenTarget,
        conversations: Sequence[Conversation],
        settings: ConversationSettings,
        states: HiddenStateCache | None = None,
        start: Drafter | None = None,
    ) -> None:
        self.target, self.settings, self.start, self.states = target, settings, start, states
        settings = dataclasses.replace(settings, context=min(settings.context, target.max_positions))
        if settings.loss == "kl":
            target.check_head()
        drafts = settings.drafts
        limit = settings.context - drafts - 1  # the last start lies before this position
        self.conversations = [each for each in conversations if each.start <= min(limit, len(each.tokens) - drafts - 1)]
        if not self.conversations:
            raise MTPCError(
                f"no conversation has an answer within {settings.context} tokens to train on; "
                "generate more with `mtpc distill`, or raise --context."
            )
        check_tokens(self.conversations, target.facts.vocab_size)
        self._notes = [] if states is None else [states.plan(map(self._text, range(len(self.conversations))))]
        lengths = [min(len(each.tokens), settings.context) for each in self.conversations]
        epochs = (epoch_batches(lengths, settings.batch, epoch, settings.seed) for epoch in range(settings.epochs))
        self._plan = [batch for epoch in epochs for batch in epoch]  # conversations of each update
        self.head = SharedHead.of(target.model)
        rows = settings.head_rows
        self.sampler = RowSampler.of(self.head, self.conversations, rows, settings.seed) if rows else None

    @property
    def schedule(self) -> Schedule:
        """Warm-up over a share of all updates, then cosine decay to zero."""
        updates = len(self._plan)
        warmup = max(1, round(self.settings.warmup * updates))
        return Schedule(self.settings.learning_rate, updates, warmup, warmup, "cosine")

    def optimizers(self, drafter: Drafter) -> list[torch.optim.Optimizer]:
        """Return optimizers for the matrices and for all other parameters (norms, biases, stacked heads)."""
        matrices = [p for p in drafter.parameters() if p.ndim == 2]
        others = [p for p in drafter.parameters() if p.ndim != 2]
        settings = self.settings
        return make_optimizers(matrices, others, settings.optimizer, settings.learning_rate, settings.weight_decay)

    def batch(self, update: int) -> TrainingBatch:
        """Return the conversations of one update, of similar lengths, in micro-batches."""
        return self.share(update, Processes())

    def share(self, update: int, processes: Processes) -> TrainingBatch:
        """Return every N-th conversation of one update, so that lengths are similar in all N processes.

        Micro-batches are those of one process, and each process computes a part of each. What is drawn at random for a
        micro-batch is therefore the same for any number of processes.
        """
        chosen, size = self._plan[update], self.settings.micro_batch
        groups = [chosen[i : i + size] for i in range(0, len(chosen), size)]
        batches = [self._collate(numbers, update)[1] for numbers in groups]
        examples = sum(int(starts.sum()) for starts in batches)
        return TrainingBatch(examples, self._micro_batches(update, groups, processes))

    def _micro_batches(self, update: int, groups: list[list[int]], processes: Processes) -> Iterator[MicroBatch]:
        for number, conversations in enumerate(groups):
            first = number * self.settings.micro_batch
            rows = [row for row in range(len(conversations)) if processes.takes(first + row)]
            if not rows:
                continue
            tokens, chosen = self._collate(conversations, update)
            head = self.head if self.sampler is None else self.sampler.sample(tokens, update, number)
            tokens, chosen = tokens[rows].to(self.target.device), chosen[rows].to(self.target.device)
            hidden, below = self._states([conversations[row] for row in rows], tokens)
            yield MicroBatch(hidden, tokens, chosen, head, below)

    def _collate(self, numbers: list[int], update: int) -> tuple[Tensor, Tensor]:
        settings = self.settings
        conversations = [self.conversations[i] for i in numbers]
        tokens, chosen = collate(conversations, settings.drafts, settings.context, settings.learn_from)
        return tokens, sample_starts(chosen, settings.starts, settings.seed, update, numbers[0])

    def _states(self, numbers: list[int], tokens: Tensor) -> tuple[Tensor, dict[int, Tensor]]:
        """Return the target's states of tokens [B, L], see `FrozenTarget.states`; padding holds any values."""
        if self.states is None:
            return self.target.states(tokens, self.below)
        hidden = pad_sequence(self.states.load_or_compute([self._text(number) for number in numbers]), batch_first=True)
        return F.pad(hidden, (0, 0, 0, tokens.shape[1] - hidden.shape[1])), {}

    def _text(self, number: int) -> tuple[int, ...]:
        """Return the tokens of a conversation that are read."""
        return self.conversations[number].tokens[: self.settings.context]

    def notes(self) -> list[str]:
        """Return the size of the hidden states that will be stored."""
        return self._notes

    def data(self) -> dict[str, Any]:
        """Return counts and digests of the conversations, and the digest of the drafter to continue from."""
        conversations = hashlib.sha256()
        for conversation in self.conversations:
            conversations.update(conversation.to_json().encode() + b"\n")
        return {
            "conversations": len(self.conversations),
            "tokens": sum(len(each.tokens[: self.settings.context]) for each in self.conversations),
            "conversations_sha256": conversations.hexdigest(),
            "start_sha256": None if self.start is None else weights_digest(self.start),
        }


def weights_digest(drafter: Drafter) -> str:
    """Return the SHA-256 of all weights of a drafter.

    Args:
        drafter: The drafter.
    """
    digest = hashlib.sha256()
    for tensor in drafter.state_dict().values():
        digest.update(tensor.detach().float().cpu().numpy().tobytes())
    return digest.hexdigest()
