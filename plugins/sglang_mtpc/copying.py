"""What the requests of a batch would copy, from the tokens that SGLang's scheduler knows of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch

from mtpc.copying.mixture import Copied
from mtpc.copying.request import CopyRequest, Proposal
from mtpc.copying.table import CopyTable


class WorkerCopying:
    """The texts of all requests that are held, each forgotten with SGLang's ``Req``.

    Steps must not overlap: what was said in the last one has to be there when the next is drafted.
    """

    def __init__(self, table: CopyTable, device: torch.device) -> None:
        self.table, self.device = table, device
        self.texts: WeakKeyDictionary[Any, CopyRequest] = WeakKeyDictionary()

    def copied(self, requests: Sequence[Any], drafts: int) -> Copied:
        """The next so many tokens of each ``Req`` of the batch, with no chance where there is nothing to copy."""
        proposals = (self._of(request).propose(drafts) for request in requests)
        tokens, chances = map(torch.from_numpy, Proposal.stacked(proposals, drafts))
        return Copied(tokens.to(self.device), chances.to(self.device))

    def _of(self, request: Any) -> CopyRequest:
        """What a request has said until now."""
        if request not in self.texts:
            self.texts[request] = CopyRequest(self.table, request.origin_input_ids)
        text = self.texts[request]
        text.append(request.output_ids[len(text.text) - len(request.origin_input_ids) :])
        return text
