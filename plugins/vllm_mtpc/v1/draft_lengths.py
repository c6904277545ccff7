"""Chooses draft lengths on the V1 runner, where sampled tokens are on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from mtpc.draft import Draft, one_hot
from mtpc.draft_length.budget import DraftBudget
from mtpc.draft_length.controller import DraftLengths
from mtpc.draft_length.cost import DEFAULT_COSTS, FREE_DRAFTS
from mtpc.prompt_lookup.mixture import Copied
from mtpc.prompt_lookup.prediction import Predictions
from mtpc.prompt_lookup.store import OutputStore
from mtpc.prompt_lookup.table import CopyTable
from vllm_mtpc.additional_config import VLLMDraftSettings
from vllm_mtpc.request_parameters import limit_of, predicted_text, tenant_of
from vllm_mtpc.v1.request_outputs import RequestOutputs


class BatchLengths:
    """Connects `DraftLengths` with the tensors and requests of vLLM's V1 runner.

    Protocol of a decoding step: `begin_step`, `plan`, `copied` and `cut`.

    Attributes:
        is_timed: Whether the engine times decoding steps at start-up, to replace the controller's cost.
        controller: Chooses the lengths.
        outputs: What the controller has of each request.

    Args:
        budget: Draft tokens of the drafter and their draft steps, see `DraftLengths`.
        longest: Maximum number of draft tokens, K.
        settings: The user's.
        table: Probabilities of prompt lookup.
        copies: Whether prompt lookup drafts as well.
        device: Where drafts are verified.
        predictions: Reads texts that requests predict.
    """

    def __init__(
        self,
        budget: DraftBudget,
        longest: int,
        settings: VLLMDraftSettings,
        table: CopyTable,
        copies: bool,
        device: torch.device,
        predictions: Predictions,
    ) -> None:
        store = None if settings.store is None else OutputStore(settings.store)
        self.is_timed = settings.adaptive and settings.step_cost is None
        assumed = DEFAULT_COSTS if device.type == "cpu" else FREE_DRAFTS
        cost = (settings.step_cost or assumed) if settings.adaptive else FREE_DRAFTS
        vocab_size = predictions.vocab_size
        self.controller = DraftLengths(budget, longest, cost, table, vocab_size, store, copies=copies)
        self.device = device
        self.outputs = RequestOutputs()
        self.predictions = predictions

    def begin_step(
        self, ids: Sequence[str], requests: Mapping[str, Any], tokens: Tensor, unread: Tensor, greedy: bool
    ) -> None:
        """Begin a step with the tokens that the target has just emitted.

        Args:
            ids: Ids of the batch's requests.
            requests: All unfinished requests of vLLM by id, without these tokens.
            tokens: int [B, W], -1 where there is no token.
            unread: bool [B], whether a part of the prompt is still to be prefilled.
            greedy: Whether every request of the batch has temperature 0.
        """
        gone = self.outputs.gone(requests)
        for name, rest in gone.items():
            self.controller.requests[name].observe(rest)
        self.controller.forget(gone)
        self.controller.begin(greedy)
        for name, row, waiting in zip(ids, tokens.tolist(), unread.tolist(), strict=True):
            request = requests[name]
            self.outputs.follow(name, request)
            new = [] if waiting else [token for token in row if token >= 0]
            # The first of these are those that became of the last draft.
            emitted = [] if waiting else [*self.outputs.missed(name, request, len(new)), *new]
            tenant, predicted = tenant_of(request), partial(predicted_text, self.predictions, request)
            prompt, limit = partial(_prompt_of, request), partial(limit_of, request)
            self.controller.add(name, prompt, emitted, waiting, tenant, predicted, limit)

    def plan(self, longest: int, is_fixed: bool) -> int:
        """Return how many tokens the drafter drafts in this step.

        Args:
            longest: Maximum number of draft tokens of this step.
            is_fixed: Whether it must not depend on the batch, as where a request has a seed.
        """
        return min(longest, self.controller.budget.tokens) if is_fixed else self.controller.plan(longest)

    def copied(self, drafts: int) -> Copied | None:
        """Return the tokens that prompt lookup proposes.

        Args:
            drafts: Number of positions.

        Returns:
            Tokens and their probabilities, [B, drafts] both, 0 where there is no proposal; None without prompt lookup.
        """
        if not self.controller.copies:
            return None
        return self.controller.copied(drafts).to(self.device)

    def cut(self, draft: Draft, longest: int, seeded: Mapping[int, Any]) -> tuple[list[list[int]], Tensor | None]:
        """Choose the length of each draft, and append tokens of prompt lookup.

        Args:
            draft: The drafter's draft.
            longest: Maximum number of draft tokens of this step.
            seeded: Generators of the requests with a seed, by their index in the batch.

        Returns:
            The draft tokens of each request, and their distributions, float32 [B, K', V], where K' is the longest
            draft; None where drafts are greedy.  Appended tokens have one-hot distributions.
        """
        rows, drafted = draft.tokens.shape
        is_seeded = [row in seeded for row in range(rows)]
        drafts = self.controller.cut(draft.tokens.tolist(), longest, is_seeded)
        width = max(map(len, drafts))
        if draft.probs is None or width <= drafted:
            return drafts, None if draft.probs is None else draft.probs[:, :width]
        appended = [row[drafted:] + [0] * (width - max(drafted, len(row))) for row in drafts]
        added = torch.tensor(appended, device=self.device)
        return drafts, torch.cat([draft.probs, one_hot(added, draft.probs.shape[2])], 1)


def _prompt_of(request: Any) -> list[int]:
    """Return the tokens of a request's prompt; none where vLLM has their embeddings only."""
    return request.prompt_token_ids or []
