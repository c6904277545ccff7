"""Recipe of byte circuits, trained on conversations of their frozen target."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.text.conversations import Conversation
from mtpc.lab.training.conversation_recipe import ConversationRecipe, MicroBatch
from mtpc.lab.training.hidden_states import HiddenStateCache
from mtpc.lab.training.recipes.byte_circuit_loss import spelling_losses
from mtpc.lab.training.settings import ByteCircuitSettings
from mtpc.memory import check_training_memory
from mtpc.methods.bytecircuit import ByteCircuit, ByteDrafterConfig
from mtpc.methods.drafter import Drafter
from mtpc.parallel.byte_part import ByteCircuitPart
from mtpc.parallel.byte_vocabulary import SYMBOLS
from mtpc.vocabulary.token_bytes import TokenBytes


class ByteCircuitRecipe(ConversationRecipe):
    """Recipe of one or several byte circuits on the same batches.

    Args:
        target: Frozen target that generated the conversations.
        tokens: Its tokens.
        conversations: Conversations of the training split.
        configs: Configuration of each drafter, by name.
        settings: Settings of the training.
        states: Cache of hidden states, see `ConversationRecipe`.

    Raises:
        MTPCError: The drafters do not fit into memory, or no conversation can be used.
    """

    settings: ByteCircuitSettings

    def __init__(
        self,
        target: FrozenTarget,
        tokens: TokenBytes,
        conversations: Sequence[Conversation],
        configs: dict[str, ByteDrafterConfig],
        settings: ByteCircuitSettings,
        *,
        states: HiddenStateCache | None = None,
    ) -> None:
        self.tokens, self.configs = tokens, configs
        with torch.device("meta"):
            check_training_memory((Drafter(ByteCircuit(), config) for config in configs.values()), "these drafters")
        super().__init__(target, conversations, settings, states)

    def models(self) -> dict[str, Drafter]:
        """Return circuits whose first symbol starts from the target's output head, all other weights random.

        Raises:
            MTPCError: No token of the target can be drafted.
        """
        unembedding, drafters = byte_unembedding(self.target.unembedding.cpu().float(), self.tokens), {}
        for name, config in self.configs.items():
            torch.manual_seed(self.settings.seed)
            drafter = Drafter(ByteCircuit(), config)
            part = byte_circuit_of(drafter)
            part.head.initialize(unembedding)
            part.byte_vocabulary.set_tokens(self.tokens)
            drafters[name] = drafter.to(self.target.device, torch.float32)
        return drafters

    def weights(self, drafter: Drafter) -> Tensor:
        """Return weights proportional to beta^(k-1), which sum to 1."""
        powers = self.settings.beta ** torch.arange(self.settings.num_drafts, device=self.target.device)
        return powers / powers.sum()

    def losses(self, drafter: Drafter, micro_batch: MicroBatch) -> Tensor:
        """Return the loss of each draft token, see `spelling_losses`."""
        hidden, tokens, chosen, *_ = micro_batch
        following = tokens[:, 1:].unfold(1, self.settings.num_drafts + 1, 1)  # [B, L - K - 1, K + 1]
        states = hidden[:, : chosen.shape[1]][chosen].float()
        return spelling_losses(byte_circuit_of(drafter), states, following[chosen]).sum(0)


def byte_unembedding(unembedding: Tensor, tokens: TokenBytes) -> Tensor:
    """Return the mean row of the tokens that begin with each byte, [257, d], from those of all tokens, [V, d]."""
    rows = unembedding.new_zeros(SYMBOLS, unembedding.shape[1])
    begins = {number: text[0] for number, text in enumerate(tokens.tokens) if text}
    if begins:
        symbols = torch.tensor(list(begins.values()))
        rows.index_add_(0, symbols, unembedding[list(begins)])
        rows /= symbols.bincount(minlength=SYMBOLS).clamp_min(1)[:, None]
    return rows


def byte_circuit_of(drafter: Drafter) -> ByteCircuitPart:
    """Return the circuit of a drafter over bytes."""
    assert isinstance(drafter.parallel, ByteCircuitPart)
    return drafter.parallel
