"""What the requests of a batch would copy, on the V1 runner, whose requests' texts are on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from mtpc.copying.length import worthwhile
from mtpc.copying.mixture import Copied
from mtpc.copying.request import CopyRequest, Proposal
from mtpc.copying.table import CopyTable
from mtpc.draft import Draft


class BatchCopying:
    """The texts of all requests, and what those of the batch at hand would go on with.

    longest: tokens of a draft, at most.
    """

    def __init__(self, longest: int, device: torch.device) -> None:
        self.table, self.longest, self.device = CopyTable(), longest, device
        self.requests: dict[str, CopyRequest] = {}
        self.proposals: list[Proposal] = []

    def sampled(self, ids: Sequence[str], requests: Mapping[str, Any], tokens: Tensor, unread: Tensor) -> None:
        """What the target has just said to each request, int [B, W], -1 where there is no token.

        requests: vLLM's, all that are not finished.  unread: bool [B], where a part of the prompt is still to come.
        """
        for gone in self.requests.keys() - requests.keys():
            del self.requests[gone]
        self.proposals = []
        for request, row, waiting in zip(ids, tokens.tolist(), unread.tolist(), strict=True):
            if request not in self.requests:
                known = requests[request]
                text = [*(known.prompt_token_ids or []), *known.output_token_ids]
                self.requests[request] = CopyRequest(self.table, text)
            if waiting:
                self.proposals.append(NOTHING)
                continue
            self.requests[request].append([token for token in row if token >= 0])
            self.proposals.append(self.requests[request].propose(self.longest))

    def copied(self, drafts: int) -> Copied:
        """The first so many tokens, with no chance where there is nothing to copy."""
        shape = len(self.proposals), drafts
        tokens, chances = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.float32)
        for row, proposal in enumerate(self.proposals):
            count = min(drafts, len(proposal.tokens))
            tokens[row, :count], chances[row, :count] = proposal.tokens[:count], proposal.chances[:count]
        return Copied(torch.from_numpy(tokens).to(self.device), torch.from_numpy(chances).to(self.device))

    def extended(self, draft: Draft, longest: int) -> tuple[list[list[int]], Tensor | None]:
        """Drafts that go on copying as far as it pays, of at most ``longest`` tokens, with distributions [B, K', V].

        A draft goes on where all of it has been copied; what it goes on with is certain.
        """
        drafts = draft.tokens.tolist()
        for row, proposal in zip(drafts, self.proposals, strict=True):
            own = len(row)
            if row == proposal.tokens[:own].tolist() and proposal.chances[:1].any():
                end = min(longest, own + worthwhile(proposal.chances, own))
                row += proposal.tokens[own:end].tolist()
        width = max(map(len, drafts))
        if draft.probs is None or width == draft.tokens.shape[1]:
            return drafts, draft.probs
        own = draft.tokens.shape[1]
        added = torch.tensor([row[own:] + [0] * (width - len(row)) for row in drafts], device=self.device)
        certain = F.one_hot(added, draft.probs.shape[2]).to(draft.probs.dtype)
        return drafts, torch.cat([draft.probs, certain], 1)


NOTHING = Proposal(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32))
