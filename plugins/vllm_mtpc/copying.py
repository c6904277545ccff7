"""What the requests of a batch would copy, on the V1 runner, whose requests' texts are on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mtpc.copying.batch import BatchCopying
from mtpc.copying.mixture import Copied
from mtpc.copying.store import Store
from mtpc.copying.table import CopyTable
from mtpc.draft import Draft, certain
from vllm_mtpc.additional import TENANT, CopySettings


class RunnerCopying:
    """`BatchCopying` of the batch that the runner has at hand, in tensors.

    own, longest, table: see there.
    """

    def __init__(self, own: int, longest: int, settings: CopySettings, table: CopyTable, device: torch.device) -> None:
        store = None if settings.store is None else Store(settings.store)
        self.batch, self.device = BatchCopying(own, longest, settings.step_cost, table, store), device

    def sampled(
        self, ids: Sequence[str], requests: Mapping[str, Any], tokens: Tensor, unread: Tensor, greedy: bool
    ) -> None:
        """What the target has just said to each request, int [B, W], -1 where there is no token.

        requests: vLLM's, all that are not finished.  unread: bool [B], where a part of the prompt is still to come.
        greedy: whether every request of the batch has a temperature of 0.
        """
        self.batch.forget(self.batch.requests.keys() - requests.keys())
        self.batch.begin(greedy)
        for name, row, waiting in zip(ids, tokens.tolist(), unread.tolist(), strict=True):
            said = [token for token in row if token >= 0]
            request = requests[name]
            self.batch.add(name, partial(_text_of, request), said, waiting, _tenant_of(request))

    def drafter_pays(self, longest: int, seeded: bool) -> bool:
        """Whether the drafter is to draft in this step.

        seeded: whether a request has a seed, which draws the same in any company: what pays for all is none of it.
        """
        return seeded or self.batch.drafter_pays(longest)

    def copied(self, drafts: int) -> Copied:
        """The first so many tokens, with no chance where there is nothing to copy."""
        tokens, chances = map(torch.from_numpy, self.batch.copied(drafts))
        return Copied(tokens.to(self.device), chances.to(self.device))

    def lengths(self, draft: Draft, longest: int, seeded: Mapping[int, Any]) -> tuple[list[list[int]], Tensor | None]:
        """Drafts as long as they pay, of at most ``longest`` tokens, with distributions [B, K', V].

        What a draft goes on with after the drafter's own is copied and certain.  seeded: by row.
        """
        rows, own = draft.tokens.shape
        sure = np.zeros((rows, 0), np.float32) if draft.peaks is None else draft.peaks.float().cpu().numpy()
        drafts = self.batch.lengths(draft.tokens.tolist(), sure, longest, [row in seeded for row in range(rows)])
        width = max(map(len, drafts))
        if draft.probs is None or width <= own:
            return drafts, None if draft.probs is None else draft.probs[:, :width]
        added = torch.tensor([row[own:] + [0] * (width - max(own, len(row))) for row in drafts], device=self.device)
        return drafts, torch.cat([draft.probs, certain(added, draft.probs.shape[2])], 1)


def _tenant_of(request: Any) -> str | None:
    """Whose request vLLM's is, if its ``vllm_xargs`` say so."""
    tenant = (getattr(request.sampling_params, "extra_args", None) or {}).get(TENANT)
    return None if tenant is None else str(tenant)


def _text_of(request: Any) -> list[int]:
    """Prompt and output of vLLM's request."""
    return [*(request.prompt_token_ids or []), *request.output_token_ids]
