"""What all drafters learn alike that learn from conversations of their frozen target: its data, updates and rate."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
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
from mtpc.lab.training.recipe import DrafterRecipe, TrainingBatch
from mtpc.lab.training.sampled_head import RowSampler
from mtpc.lab.training.schedule import Schedule
from mtpc.lab.training.settings import ConversationSettings
from mtpc.methods.drafter import Drafter
from mtpc.target_head.shared import SharedHead


class MicroBatch(NamedTuple):
    """Some conversations: the target's states [B, L, d] of tokens, int64 [B, L], and the starts that are learnt from.

    chosen: bool [B, L - K - 1].  head: the output head, or a sample of its rows.
    """

    hidden: Tensor
    tokens: Tensor
    chosen: Tensor
    head: SharedHead


class ConversationRecipe(DrafterRecipe):
    """The target's states of whole conversations, of which every position that is learnt from is an example.

    conversations: those of the training split.  states: where the target's states of every conversation are
    kept; None: they are computed anew for every update.  start: a drafter that is trained
    already, to go on from; None: the target's own last layers.

    Errors: `MTPCError` for conversations of another target, or too few.
    """

    save_every = 20
    settings: ConversationSettings

    def __init__(
        self,
        target: FrozenTarget,
        conversations: Sequence[Conversation],
        settings: ConversationSettings,
        states: HiddenStateCache | None = None,
        start: Drafter | None = None,
    ) -> None:
        self.target, self.settings, self.start = target, settings, start
        self.states = states
        drafts = settings.drafts
        long_enough = settings.context - drafts - 1  # the last start that counts lies before it
        self.conversations = [
            each for each in conversations if each.start <= min(long_enough, len(each.tokens) - drafts - 1)
        ]
        if not self.conversations:
            raise MTPCError(f"no conversation has an answer within {settings.context} tokens to train on.")
        check_tokens(self.conversations, target.facts.vocab_size)
        lengths = [min(len(each.tokens), settings.context) for each in self.conversations]
        epochs = (epoch_batches(lengths, settings.batch, epoch, settings.seed) for epoch in range(settings.epochs))
        self._plan = [batch for epoch in epochs for batch in epoch]  # conversations of each update
        self.head = SharedHead.of(target.model)
        rows = settings.head_rows
        self.sampler = RowSampler.of(self.head, self.conversations, rows, settings.seed) if rows else None

    @property
    def schedule(self) -> Schedule:
        """Warm-up over a share of all updates, then a cosine to zero."""
        updates = len(self._plan)
        warmup = max(1, round(self.settings.warmup * updates))
        return Schedule(self.settings.learning_rate, updates, warmup, warmup, "cosine")

    def optimizers(self, drafter: Drafter) -> list[torch.optim.Optimizer]:
        """For the matrices, and for norms, biases and heads that are stacked."""
        matrices = [p for p in drafter.parameters() if p.ndim == 2]
        others = [p for p in drafter.parameters() if p.ndim != 2]
        settings = self.settings
        return make_optimizers(matrices, others, settings.optimizer, settings.learning_rate, settings.weight_decay)

    def batch(self, update: int) -> TrainingBatch:
        """Conversations of like length."""
        chosen, size = self._plan[update], self.settings.micro_batch
        groups = [chosen[i : i + size] for i in range(0, len(chosen), size)]
        batches = [self._collate(numbers, update)[1] for numbers in groups]
        return TrainingBatch(sum(int(starts.sum()) for starts in batches), self._micro_batches(update, groups))

    def _micro_batches(self, update: int, groups: list[list[int]]) -> Iterator[MicroBatch]:
        for number, conversations in enumerate(groups):
            tokens, chosen = self._collate(conversations, update)
            head = self.head if self.sampler is None else self.sampler.sample(tokens, update, number)
            tokens, chosen = tokens.to(self.target.device), chosen.to(self.target.device)
            yield MicroBatch(self._states(conversations, tokens), tokens, chosen, head)

    def _collate(self, numbers: list[int], update: int) -> tuple[Tensor, Tensor]:
        settings = self.settings
        conversations = [self.conversations[i] for i in numbers]
        tokens, chosen = collate(conversations, settings.drafts, settings.context, settings.learn_from)
        return tokens, sample_starts(chosen, settings.starts, settings.seed, update, numbers[0])

    def _states(self, numbers: list[int], tokens: Tensor) -> Tensor:
        """The target's states of tokens [B, L], those of the conversations of these numbers: [B, L, d].

        What is padding may be anything.
        """
        if self.states is None:
            return self.target.hidden(tokens)
        found = self.states.load_or_compute([self.conversations[number].tokens[: self.settings.context] for number in numbers])
        hidden = pad_sequence(found, batch_first=True)
        return F.pad(hidden, (0, 0, 0, tokens.shape[1] - hidden.shape[1]))

    def data(self) -> dict[str, Any]:
        """The conversations that are learnt from, and the drafter that the training goes on from."""
        conversations = hashlib.sha256()
        for conversation in self.conversations:
            conversations.update(conversation.to_json().encode() + b"\n")
        return {
            "conversations": len(self.conversations),
            "tokens": sum(len(each.tokens[: self.settings.context]) for each in self.conversations),
            "conversations_sha256": conversations.hexdigest(),
            "start_sha256": None if self.start is None else _digest(self.start),
        }


def _digest(drafter: Drafter) -> str:
    """Of all weights."""
    digest = hashlib.sha256()
    for tensor in drafter.state_dict().values():
        digest.update(tensor.detach().float().cpu().numpy().tobytes())
    return digest.hexdigest()
