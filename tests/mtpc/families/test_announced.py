"""The line that an engine logs of its drafter."""

from __future__ import annotations

from torch import nn

from mtpc.families.announced import Shares, announced
from mtpc.families.mtpc.family import MTPC


def test_says_what_drafts_and_what_it_takes() -> None:
    drafter, target = nn.Sequential(nn.Linear(1000, 250, bias=False), nn.Linear(7, 7)), nn.Linear(7, 7)
    drafter[1] = target  # shared
    line = announced("dir", MTPC(), Shares(2, 0, 3), "drafting from all 9 tokens", [drafter], target.parameters(), "V1")
    assert line == (
        "dir is an MTPC drafter and drafts up to 5 tokens; 2 by its serial part, 3 copied beyond those; "
        "drafting from all 9 tokens; its weights take 1.0 MB; V1."
    )
