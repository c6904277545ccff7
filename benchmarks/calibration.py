r"""Whether drafted tokens are accepted as often as was foretold when their number was chosen, by position.

    python -m benchmarks.calibration --target runs/smollm2 --drafter weights/smollm2-fastmtp --prompts questions.jsonl

The plain loop, greedy: the drafter's tokens mixed with copied ones, as many as pay, against what the target says.  Of
those tokens that come after accepted ones only, as others are never looked at.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.progress import track

from mtpc.copying.batch import BatchCopying
from mtpc.copying.mixture import Copied
from mtpc.copying.table import CopyTable
from mtpc.evaluation.prompts import prompts_of_file
from mtpc.evaluation.texts import Text, view, write_texts
from mtpc.families.drafter import Drafter, load_drafter, own_drafts
from mtpc.families.session import Session
from mtpc.lengths import StepCost
from mtpc.table import Table
from mtpc.target_head.shared import SharedHead
from mtpc.targets.frozen import FrozenTarget, default_device

ALL = "all"


class Token(NamedTuple):
    """One drafted token: its place in the draft, from 1 on, the chance that was foretold, and whether it came true."""

    place: int
    by: str  # "drafter" or "copying"
    foretold: float
    right: bool


@torch.inference_mode()
def drafted(target: FrozenTarget, drafter: Drafter, table: CopyTable, text: Text, longest: int) -> Iterator[Token]:
    """What is drafted along a greedy text, up to the first token of each draft that is wrong."""
    seen = view(target, text)
    session = Session(drafter, SharedHead.of(target.model))
    copying = BatchCopying(own_drafts(drafter.family, drafter.config, longest), longest, StepCost(), table)
    known, end = 0, text.start + 1  # tokens whose states are taken up; tokens that are said
    while end < len(text.tokens):
        said = text.tokens[max(known + 1, text.start) : end]
        copying.begin()
        copying.add("text", lambda: text.tokens[: text.start], said, waiting=False)
        own = copying.own if copying.own and copying.drafter_pays(longest) else 0
        tokens, chances = map(torch.from_numpy, copying.copied(own))
        draft = session.draft(
            seen.hidden[None, known : end - 1],
            seen.tokens[None, known + 1 : end],
            own,
            copied=Copied(tokens, chances) if own else None,
        )
        sure = np.zeros((1, 0), np.float32) if draft.peaks is None else draft.peaks.numpy()
        (tokens_drafted,) = copying.lengths(draft.tokens.tolist(), sure, longest, [False])
        known = end - 1
        for place, (token, foretold) in enumerate(zip(tokens_drafted, copying.foretold[0], strict=True)):
            if end == len(text.tokens):
                return
            right = token == text.tokens[end]
            yield Token(place + 1, "drafter" if place < own else "copying", foretold, right)
            if not right:
                break
            end += 1
        end += 1


def calibration(tokens: list[Token]) -> Table:
    """By who drafted and place."""
    groups: dict[tuple[str, str], list[Token]] = defaultdict(list)
    for token in tokens:
        for place in (str(token.place), ALL):
            groups[token.by, place].append(token)
    rows = []
    for (by, place), found in sorted(
        groups.items(), key=lambda item: (item[0][0], item[0][1] == ALL, int_or_0(item[0][1]))
    ):
        foretold, right = (float(np.mean([getattr(token, name) for token in found])) for name in ("foretold", "right"))
        rows.append([by, place, str(len(found)), f"{foretold:.3f}", f"{right:.3f}", f"{right - foretold:+.3f}"])
    return Table("Foretold and true", ["drafted by", "place", "tokens", "foretold", "true", "difference"], rows)


def int_or_0(text: str) -> int:
    """To sort places by."""
    return int(text) if text.isdecimal() else 0


def main() -> None:
    """Write texts, draft along them, count, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--drafter", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, required=True, help="JSON Lines, as for `mtpc bench`")
    parser.add_argument("--questions", type=int, default=4, help="of each kind (default: %(default)s)")
    parser.add_argument("--max-tokens", type=int, default=96, help="of an answer (default: %(default)s)")
    parser.add_argument("--longest", type=int, default=10, help="draft (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="a file for the table, as Markdown")
    given = parser.parse_args()
    target = FrozenTarget(given.target, device=default_device())
    drafter, table = load_drafter(given.drafter, target.facts), CopyTable.of(given.drafter)
    written = write_texts(target, prompts_of_file(given.prompts, given.target, given.questions), given.max_tokens, 0, 0)
    texts = [text for of_kind in written.values() for text in of_kind]
    tokens = [token for text in track(texts, "texts") for token in drafted(target, drafter, table, text, given.longest)]
    found = calibration(tokens)
    Console().print(found.to_rich())
    if given.out is not None:
        given.out.write_text(found.to_markdown())


if __name__ == "__main__":
    main()
