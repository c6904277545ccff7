"""The draft lengths of a batch on the V1 runner, whose requests' tokens are on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from mtpc.draft import Draft, one_hot
from mtpc.draft_length.budget import DraftBudget
from mtpc.draft_length.controller import DraftLengths
from mtpc.draft_length.cost import FREE, MEASURED
from mtpc.prompt_lookup.mixture import Copied
from mtpc.prompt_lookup.store import Store
from mtpc.prompt_lookup.table import CopyTable
from vllm_mtpc.additional import TENANT, Section


class BatchLengths:
    """`DraftLengths` of the batch that the runner has at hand, in tensors.

    One step: `sampled`, then `plan`, then `cut`.

    Args:
        budget, longest, table: See `DraftLengths`.
        settings: Of the user.
        copies: Whether prompt lookup drafts as well.
    """

    def __init__(
        self,
        budget: DraftBudget,
        longest: int,
        settings: Section,
        table: CopyTable,
        copies: bool,
        device: torch.device,
    ) -> None:
        store = None if settings.store is None else Store(settings.store)
        self.is_timed = settings.adaptive and settings.step_cost is None  # whether steps are to be timed at start-up
        cost = (settings.step_cost or MEASURED) if settings.adaptive else FREE
        self.controller, self.device = DraftLengths(budget, longest, cost, table, store, copies=copies), device
        self.known: dict[str, Any] = {}  # vLLM's requests by name, which may be used again

    def sampled(
        self, ids: Sequence[str], requests: Mapping[str, Any], tokens: Tensor, unread: Tensor, greedy: bool
    ) -> None:
        """Begin a step with what the target has just emitted.

        Args:
            ids: The requests of the batch.
            requests: vLLM's, all that are not finished.
            tokens: int [B, W], -1 where there is no token.
            unread: bool [B], where a part of the prompt is still to come.
            greedy: Whether every request of the batch has a temperature of 0.
        """
        gone = [name for name, request in self.known.items() if requests.get(name) is not request]
        self.controller.forget(gone)
        for name in gone:
            del self.known[name]
        self.controller.begin(greedy)
        for name, row, waiting in zip(ids, tokens.tolist(), unread.tolist(), strict=True):
            request = self.known[name] = requests[name]
            said = [token for token in row if token >= 0 and not waiting]
            self.controller.add(name, partial(_text_of, request), said, waiting, _tenant_of(request))

    def plan(self, longest: int, seeded: bool) -> int:
        """Return how many tokens the drafter is to draft in this step.

        Args:
            longest: Tokens of a draft in this step.
            seeded: Whether a request has a seed: it drafts the same in any company.
        """
        return min(longest, self.controller.budget.tokens) if seeded else self.controller.plan(longest)

    def copied(self, drafts: int) -> Copied | None:
        """Return the first tokens that would be copied, without a chance where there are none; None: none are."""
        if not self.controller.copies:
            return None
        return self.controller.copied(drafts).to(self.device)

    def cut(self, draft: Draft, longest: int, seeded: Mapping[int, Any]) -> tuple[list[list[int]], Tensor | None]:
        """Return drafts as long as is worth it, with distributions [B, K', V].

        What a draft goes on with after the drafter's tokens is copied and certain.

        Args:
            draft: The drafter's.
            longest: Tokens of a draft in this step.
            seeded: The requests with a seed, by row.
        """
        rows, own = draft.tokens.shape
        alone = [row in seeded for row in range(rows)]
        drafts = self.controller.cut(draft.tokens.tolist(), draft.host_confidences, longest, alone)
        width = max(map(len, drafts))
        if draft.probs is None or width <= own:
            return drafts, None if draft.probs is None else draft.probs[:, :width]
        added = torch.tensor([row[own:] + [0] * (width - max(own, len(row))) for row in drafts], device=self.device)
        return drafts, torch.cat([draft.probs, one_hot(added, draft.probs.shape[2])], 1)


def _tenant_of(request: Any) -> str | None:
    """Whose request vLLM's is, if its ``vllm_xargs`` say so."""
    tenant = (getattr(request.sampling_params, "extra_args", None) or {}).get(TENANT)
    return None if tenant is None else str(tenant)


def _text_of(request: Any) -> list[int]:
    """Prompt and output of vLLM's request."""
    return [*(request.prompt_token_ids or []), *request.output_token_ids]
