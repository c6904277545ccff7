r"""Whether drafted tokens are accepted as often as was foretold when their number was chosen, by position.

    python -m benchmarks.calibration --target runs/smollm2 --drafter weights/smollm2-fastmtp --prompts questions.jsonl

The plain loop, greedy: the drafter's tokens mixed with copied ones, as many as pay, against what the target says.  Of
those tokens that come after accepted ones only, as others are never looked at.  Last, the time that a step of one
request takes to find what may be copied and to choose the length of its draft, and what "own" and "copied" in the
drafter's copying.json would have been right; fit them on other prompts than they are measured on.

With --temperature the drafter alone, by rejection sampling, all that it draws: what "own_sampled" and "slope" would
have been right.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.progress import track

from benchmarks.arguments import one_sentence
from benchmarks.plain_loop import Clock, steps
from mtpc.draft_length.controller import DraftLengths
from mtpc.draft_length.cost import DEFAULT_COSTS
from mtpc.lab.evaluation.decoding import speculate
from mtpc.lab.evaluation.prompts import prompts_of_file
from mtpc.lab.evaluation.texts import GeneratedText, generate_texts
from mtpc.lab.table import Table
from mtpc.lab.targets.frozen import FrozenTarget, default_device
from mtpc.methods.drafter import Drafter, draft_budget, load_drafter
from mtpc.prompt_lookup.calibration import LARGEST, SMALLEST
from mtpc.prompt_lookup.table import CopyTable
from mtpc.target_head.shared import SharedHead


class Token(NamedTuple):
    """One drafted token: its place in the draft, from 1 on, the chance that was foretold, and whether it came true."""

    place: int
    by: str  # "drafter" or "copying"
    foretold: float
    right: bool


def drafted(
    target: FrozenTarget, drafter: Drafter, table: CopyTable, text: GeneratedText, longest: int, clock: Clock
) -> Iterator[Token]:
    """What is drafted along a greedy text, up to the first token of each draft that is wrong."""
    copying = DraftLengths(draft_budget(drafter.config, longest, True), longest, DEFAULT_COSTS, table)
    for step in steps(target, drafter, copying, text, clock):
        for place, (foretold, right) in enumerate(zip(step.chances, step.right, strict=False)):
            yield Token(place + 1, "drafter" if place < step.own else "copying", foretold, right)


def drawn(
    target: FrozenTarget, drafter: Drafter, table: CopyTable, texts: Sequence[GeneratedText], given: argparse.Namespace
) -> Iterator[tuple[Token, float]]:
    """What is drawn after each prompt, up to the first of each draft that is rejected, and the largest chance there."""
    head, drafts = SharedHead.of(target.model), draft_budget(drafter.config, given.longest, True).tokens
    for number, text in enumerate(track(texts, "texts")):
        prompt, noise = text.tokens[: text.start], torch.Generator().manual_seed(number)
        how = {"temperature": given.temperature, "generator": noise}
        decoded = speculate(target, drafter, head, prompt, given.max_tokens, drafts, **how)
        for peaks, accepted in zip(decoded.confidence, decoded.accepted, strict=True):
            foretold = table.of_drafter(peaks, greedy=False)
            for place in range(min(accepted + 1, drafts)):
                yield Token(place + 1, "drafter", foretold[place], place < accepted), peaks[place]


def calibration(tokens: Sequence[Token]) -> Table:
    """By who drafted them and place, and of all places."""
    rows = []
    for by in sorted({token.by for token in tokens}):
        theirs = [token for token in tokens if token.by == by]
        for place in [*sorted({token.place for token in theirs}), None]:
            of_place = [token for token in theirs if place in (token.place, None)]
            foretold = float(np.mean([token.foretold for token in of_place]))
            true = float(np.mean([token.right for token in of_place]))
            name, number = "all" if place is None else str(place), str(len(of_place))
            rows.append([by, name, number, f"{foretold:.3f}", f"{true:.3f}", f"{true - foretold:+.3f}"])
    return Table("Foretold and true", ["drafted by", "place", "tokens", "foretold", "true", "difference"], rows)


def fitted(tokens: Sequence[Token], by: str, added: Sequence[float]) -> list[float]:
    """What to add to the logits of chances, by place, where something has been added already.

    by: whose, those of drafts of the drafter or of copies.
    """
    shifts = []
    for place in sorted({token.place for token in tokens if token.by == by}):
        of_place = [token for token in tokens if token.by == by and token.place == place]
        true = (sum(token.right for token in of_place) + 1) / (len(of_place) + 2)
        foretold = float(np.mean([token.foretold for token in of_place]))
        shifts.append(round(added[min(place, len(added)) - 1] + logit(true) - logit(foretold), 2))
    return shifts


def regression(peaks: Sequence[float], right: Sequence[bool]) -> tuple[float, float]:
    """What is added to the logit of the largest chance, and by what it is multiplied before: logistic regression."""
    chances = np.clip(np.array(peaks), SMALLEST, LARGEST)
    inputs, wanted = np.stack([np.ones(len(chances)), np.log(chances / (1.0 - chances))], 1), np.array(right, float)
    weights = np.zeros(2)
    for _ in range(50):
        found = 1.0 / (1.0 + np.exp(-inputs @ weights))
        curvature = inputs.T @ (inputs * (found * (1.0 - found))[:, None])
        weights += np.linalg.solve(curvature, inputs.T @ (wanted - found))
    added, slope = weights.round(2).tolist()
    return added, slope


def logit(chance: float) -> float:
    """Of a chance between 0 and 1."""
    return math.log(chance / (1.0 - chance))


@one_sentence
def main() -> None:
    """Write texts, draft along them, count, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--drafter", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, required=True, help="JSON Lines, as for `mtpc bench`")
    parser.add_argument("--questions", type=int, default=4, help="of each kind (default: %(default)s)")
    parser.add_argument("--max-tokens", type=int, default=96, help="of an answer (default: %(default)s)")
    parser.add_argument("--longest", type=int, default=10, help="draft (default: %(default)s)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0, as given by default, is greedy")
    parser.add_argument("--out", type=Path, help="a file for the table, as Markdown")
    given = parser.parse_args()
    target = FrozenTarget(given.target, device=default_device())
    drafter, table = load_drafter(given.drafter, target.facts), CopyTable.of(given.drafter)
    written = generate_texts(
        target, prompts_of_file(given.prompts, given.target, given.questions), given.max_tokens, 0, 0
    )
    texts = [text for of_kind in written.values() for text in of_kind]
    tokens: list[Token] = []
    console = Console()
    if given.temperature:
        tokens, peaks = map(list, zip(*drawn(target, drafter, table, texts, given), strict=True))
        added, slope = regression(peaks, [token.right for token in tokens])
        told = [f'"own_sampled": [{added}], "slope": [{table.slope[0]}, {slope}]']
    else:
        clock = Clock()
        for text in track(texts, "texts"):
            tokens += drafted(target, drafter, table, text, given.longest, clock)
        told = [
            f"Finding copies and choosing lengths: {1000 * clock.seconds / clock.steps:.3f} ms a step.",
            f'"own": {fitted(tokens, "drafter", table.own)}',
            f'"copied": {fitted(tokens, "copying", table.copied)}',
        ]
    found = calibration(tokens)
    console.print(found.to_rich())
    console.print("\n".join(told))
    if given.out is not None:
        given.out.write_text(found.to_markdown())


if __name__ == "__main__":
    sys.exit(main())
