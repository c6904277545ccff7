"""What the requests of a batch would copy, on the V1 runner, whose requests' texts are on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from mtpc.draft import Draft, certain
from mtpc.draft_length.batch import BatchCopying
from mtpc.draft_length.budget import Own
from mtpc.draft_length.measured import StepTimes
from mtpc.prompt_lookup.mixture import Copied
from mtpc.prompt_lookup.store import Store
from mtpc.prompt_lookup.table import CopyTable
from vllm_mtpc.additional import TENANT, CopySettings
from vllm_mtpc.ranks import told_by_first_rank


class RunnerCopying:
    """`BatchCopying` of the batch that the runner has at hand, in tensors.

    own, longest, table: see there.  resting: whether this step goes by without a look at what might be drafted.  own:
    how many tokens the drafter is to draft in it; None: nobody has asked.
    """

    resting, own = False, None

    def __init__(self, own: Own, longest: int, settings: CopySettings, table: CopyTable, device: torch.device) -> None:
        store, cost = None if settings.store is None else Store(settings.store), settings.step_cost
        times = None if cost.fixed else StepTimes(cost, told_by_first_rank)
        self.batch, self.device = BatchCopying(own, longest, cost, table, store, times=times), device
        # vLLM's requests by name, which may be used again: those of the batch, and of the last step that rested.
        self.known: dict[str, Any] = {}
        self.rested: dict[str, Any] = {}
        self.unheard: list[Tensor] = []  # what the target has said to these since

    def sampled(
        self,
        ids: Sequence[str],
        requests: Mapping[str, Any],
        tokens: Tensor,
        unread: Tensor,
        greedy: bool,
        seeded: bool,
    ) -> None:
        """What the target has just said to each request, int [B, W], -1 where there is no token.

        requests: vLLM's, all that are not finished.  unread: bool [B], where a part of the prompt is still to come.
        greedy: whether every request of the batch has a temperature of 0.  seeded: whether one has a seed: its drafts
        depend on nobody else.
        """
        self._catch_up()
        rows = list(zip(ids, tokens.tolist(), unread.tolist(), strict=True))
        said = {name: [token for token in row if token >= 0 and not waiting] for name, row, waiting in rows}
        gone = [name for name, request in self.known.items() if requests.get(name) is not request]
        self.batch.forget(gone)
        for name in gone:
            del self.known[name]
        self.resting, self.own = not seeded and self.batch.rests(said, greedy), None
        if self.resting:
            self.rested = {name: requests[name] for name in ids}
            return
        self.batch.begin(greedy)
        for name, _, waiting in rows:
            request = self.known[name] = requests[name]
            self.batch.add(name, partial(_text_of, request), said[name], waiting, _tenant_of(request))

    def rests_on(self, ids: list[str], requests: Mapping[str, Any], tokens: Tensor) -> bool:
        """Whether this step drafts nothing either, after one with the same requests that rested.

        requests: as of `sampled`.  tokens: what the target has just said to each, int [B, 1], read later: nobody may
        overwrite it.  Where this is so, nothing else is to be done; where it is not, `sampled` follows.
        """
        if not self.resting or len(ids) == 1 or ids != list(self.rested):
            return False
        if any(requests[name] is not one for name, one in self.rested.items()) or not self.batch.rests_on():
            return False
        self.unheard.append(tokens)
        return True

    def _catch_up(self) -> None:
        """All that was said in steps that rested on."""
        for step in self.unheard:
            for name, said in zip(self.rested, step.tolist(), strict=True):
                self.batch.missed(name, said)
        self.unheard.clear()

    def own_that_pay(self, longest: int, seeded: bool) -> int:
        """How many tokens the drafter is to draft in this step.

        seeded: whether a request has a seed, which draws the same in any company: what pays for all is none of it.
        """
        if self.resting:
            return 0
        if seeded:
            return min(longest, self.batch.own.count)
        if self.own is None:
            self.own = self.batch.own_that_pay(longest)
        return self.own

    def goes_on(self, tokens: Tensor, peaks: Tensor) -> bool:
        """See `BatchCopying.goes_on`: int64 [B] and float32 [B]."""
        return self.batch.goes_on(tokens.tolist(), peaks.tolist())

    def copied(self, drafts: int) -> Copied:
        """The first so many tokens, with no chance where there is nothing to copy."""
        tokens, chances = map(torch.from_numpy, self.batch.copied(drafts))
        return Copied(tokens.to(self.device), chances.to(self.device))

    def lengths(self, draft: Draft, longest: int, seeded: Mapping[int, Any]) -> tuple[list[list[int]], Tensor | None]:
        """Drafts as long as they pay, of at most ``longest`` tokens, with distributions [B, K', V].

        What a draft goes on with after the drafter's own is copied and certain.  seeded: by row.
        """
        rows, own = draft.tokens.shape
        if self.resting:
            return [[] for _ in range(rows)], None
        drafts = self.batch.lengths(draft.tokens.tolist(), draft.sure, longest, [row in seeded for row in range(rows)])
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
