"""What the requests of a batch would copy, from the tokens that SGLang's scheduler knows of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self
from weakref import WeakKeyDictionary

import torch

from mtpc.copying.mixture import Copied
from mtpc.copying.request import CopyRequest, Proposal
from mtpc.copying.table import CopyTable
from mtpc.draft import Draft, certain, concatenated
from sglang_mtpc import served


class WorkerCopying:
    """The texts of all requests that are held, each forgotten with SGLang's ``Req``.

    Steps must not overlap: what was said in the last one has to be there when the next is drafted.
    """

    def __init__(self, table: CopyTable, device: torch.device) -> None:
        self.table, self.device = table, device
        self.texts: WeakKeyDictionary[Any, CopyRequest] = WeakKeyDictionary()

    @classmethod
    def of_served(cls, device: torch.device) -> Self | None:
        """Of the drafter that this process serves; None: nothing is copied."""
        return cls(CopyTable.of(Path(served.folder())), device) if served.copies() else None

    def copied(self, requests: Sequence[Any], drafts: int) -> Copied:
        """The next so many tokens of each ``Req`` of the batch, with no chance where there is nothing to copy."""
        proposals = (self._of(request).propose(drafts) for request in requests)
        tokens, chances = map(torch.from_numpy, Proposal.beside_drafter(proposals, drafts))
        return Copied(tokens.to(self.device), chances.to(self.device))

    def _of(self, request: Any) -> CopyRequest:
        """What a request has said until now."""
        if request not in self.texts:
            self.texts[request] = CopyRequest(self.table, request.origin_input_ids)
        text = self.texts[request]
        text.append(request.output_ids[len(text.text) - len(request.origin_input_ids) :])
        return text


def lengthened(draft: Draft, copied: Copied) -> Draft:
    """A draft that goes on with what would be copied after it, as long as that is: [B, m].

    These tokens are certain, and stated so.  All drafts of SGLang's have one length, so they are there also where the
    draft itself was not copied, and are then seldom accepted.
    """
    tokens = copied.tokens[:, draft.tokens.shape[1] :]
    if draft.probs is None:
        return concatenated([draft, Draft(tokens, None)])
    return concatenated([draft, Draft(tokens, certain(tokens, draft.probs.shape[2]))])
