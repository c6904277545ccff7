"""What two ranks that record their drafts have drafted, the second one's files with ``.1`` after their names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def assert_ranks_draft_the_same(folder: Path, ask: Callable[[], object]) -> None:
    """Also where drafts are drawn, and what is stated of them to the last bit; ask: for several sampled texts."""
    drafts, stated = folder / "drafts", folder / "stated"
    before = len(drafts.read_text().splitlines())
    ask()
    first, second = (Path(f"{drafts}{rank}").read_text().splitlines() for rank in ("", ".1"))
    both = min(len(first), len(second))  # the last step may be on its way to one of the files
    assert both > before + 5
    assert second[:both] == first[:both]
    own, other = (Path(f"{stated}{rank}").read_text().splitlines() for rank in ("", ".1"))
    assert len(set(own)) > 5
    assert other[:both] == own[:both]
