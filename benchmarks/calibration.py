r"""Compare predicted with observed acceptance of draft tokens, by position in the draft.

    python -m benchmarks.calibration --target runs/smollm2 --drafter weights/smollm2-fastmtp --prompts questions.jsonl

The target generates greedy outputs.  The reference implementation drafts along them without an engine: tokens of the
drafter and of prompt lookup, with adaptive draft lengths.  A draft token counts if all draft tokens before it were
accepted, because verification stops at the first rejected one.  After the table the command prints the host overhead
of one request, and the values of "own" and "copied" in the drafter's copying.json that fit these outputs.  Fit them on
other prompts than those that you measure on.

With --temperature only the drafter drafts, always its full length, and drafts are verified by rejection sampling.  The
command then prints the values of "own_sampled" and "slope" that fit.
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
from benchmarks.reference_loop import Clock, steps
from mtpc.draft_length.controller import DraftLengths
from mtpc.draft_length.cost import DEFAULT_COSTS
from mtpc.lab.evaluation.decoding import speculate
from mtpc.lab.evaluation.prompts import prompts_of_file
from mtpc.lab.evaluation.texts import GeneratedText, generate_texts
from mtpc.lab.table import Table
from mtpc.lab.targets.frozen import FrozenTarget, default_device
from mtpc.methods.drafter import Drafter, draft_budget
from mtpc.prompt_lookup.calibration import LARGEST, SMALLEST
from mtpc.prompt_lookup.table import CopyTable
from mtpc.target_head.shared import SharedHead

DRAFTER, PROMPT_LOOKUP = "drafter", "prompt lookup"


class Token(NamedTuple):
    """One verified draft token.

    Attributes:
        position: Position in the draft, from 1 on.
        by: Who drafted it: "drafter" or "prompt lookup".
        predicted: Predicted probability that it is accepted if all tokens before it are.
        accepted: Whether it was accepted.
    """

    position: int
    by: str
    predicted: float
    accepted: bool


def drafted(
    target: FrozenTarget, drafter: Drafter, table: CopyTable, text: GeneratedText, longest: int, clock: Clock
) -> Iterator[Token]:
    """Yield the draft tokens along a greedy text, up to the first rejected token of each draft."""
    lengths = DraftLengths(draft_budget(drafter.config, longest, True), longest, DEFAULT_COSTS, table)
    for step in steps(target, drafter, lengths, text, clock):
        for position, (predicted, accepted) in enumerate(zip(step.predicted, step.accepted, strict=False)):
            yield Token(position + 1, DRAFTER if position < step.by_drafter else PROMPT_LOOKUP, predicted, accepted)


def drawn(
    target: FrozenTarget, drafter: Drafter, table: CopyTable, texts: Sequence[GeneratedText], given: argparse.Namespace
) -> Iterator[tuple[Token, float]]:
    """Draft and verify after each prompt by sampling.

    Yields:
        The draft tokens up to the first rejected token of each draft, each with the drafter's confidence: its largest
        probability at this position.
    """
    head, drafts = SharedHead.of(target.model), draft_budget(drafter.config, given.longest, True).tokens
    for number, text in enumerate(track(texts, "texts")):
        prompt, noise = text.tokens[: text.start], torch.Generator().manual_seed(number)
        how = {"temperature": given.temperature, "generator": noise}
        decoded = speculate(target, drafter, head, prompt, given.max_tokens, drafts, **how)
        for confidences, accepted in zip(decoded.confidence, decoded.accepted, strict=True):
            predicted = table.of_drafter(confidences, greedy=False)
            for position in range(min(accepted + 1, drafts)):
                token = Token(position + 1, DRAFTER, predicted[position], position < accepted)
                yield token, confidences[position]


def calibration(tokens: Sequence[Token]) -> Table:
    """Return mean predicted and observed acceptance by drafter and position, and over all positions."""
    rows = []
    for by in sorted({token.by for token in tokens}):
        drafted_by = [token for token in tokens if token.by == by]
        for position in [*sorted({token.position for token in drafted_by}), None]:
            chosen = [token for token in drafted_by if position in (token.position, None)]
            predicted = float(np.mean([token.predicted for token in chosen]))
            observed = float(np.mean([token.accepted for token in chosen]))
            name, number = "all" if position is None else str(position), str(len(chosen))
            rows.append([by, name, number, f"{predicted:.3f}", f"{observed:.3f}", f"{observed - predicted:+.3f}"])
    columns = ["drafted by", "position", "tokens", "predicted", "observed", "difference"]
    return Table("Conditional acceptance rate, predicted and observed", columns, rows)


def fitted(tokens: Sequence[Token], by: str, added: Sequence[float]) -> list[float]:
    """Fit what is added to the logits of predicted probabilities, by position.

    Args:
        tokens: Draft tokens.
        by: Which of them to fit, see `Token.by`.
        added: What was added already when they were predicted, by position.
    """
    shifts = []
    for position in sorted({token.position for token in tokens if token.by == by}):
        chosen = [token for token in tokens if token.by == by and token.position == position]
        observed = (sum(token.accepted for token in chosen) + 1) / (len(chosen) + 2)
        predicted = float(np.mean([token.predicted for token in chosen]))
        shifts.append(round(added[min(position, len(added)) - 1] + logit(observed) - logit(predicted), 2))
    return shifts


def regression(confidences: Sequence[float], accepted: Sequence[bool]) -> tuple[float, float]:
    """Fit acceptance to the logit of the confidence by logistic regression; return the intercept and the slope."""
    chances = np.clip(np.array(confidences), SMALLEST, LARGEST)
    inputs, wanted = np.stack([np.ones(len(chances)), np.log(chances / (1.0 - chances))], 1), np.array(accepted, float)
    weights = np.zeros(2)
    for _ in range(50):
        found = 1.0 / (1.0 + np.exp(-inputs @ weights))
        curvature = inputs.T @ (inputs * (found * (1.0 - found))[:, None])
        weights += np.linalg.solve(curvature, inputs.T @ (wanted - found))
    added, slope = weights.round(2).tolist()
    return added, slope


def logit(chance: float) -> float:
    """Return the logit of a probability between 0 and 1."""
    return math.log(chance / (1.0 - chance))


@one_sentence
def main() -> None:
    """Generate texts, draft along them, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, required=True, help="folder of the target")
    parser.add_argument("--drafter", type=Path, required=True, help="drafter checkpoint")
    parser.add_argument("--prompts", type=Path, required=True, help="JSON Lines file, as for `mtpc bench`")
    questions = "limit the prompts of each category (default: %(default)s)"
    parser.add_argument("--questions", type=int, default=4, help=questions)
    length = "limit the tokens of an output (default: %(default)s)"
    parser.add_argument("--max-tokens", type=int, default=96, help=length)
    parser.add_argument("--longest", type=int, default=10, help="limit the tokens of a draft (default: %(default)s)")
    temperature = "sample at this temperature; 0 is greedy (default: %(default)s)"
    parser.add_argument("--temperature", type=float, default=0.0, help=temperature)
    parser.add_argument("--out", type=Path, help="write the table to this Markdown file")
    given = parser.parse_args()
    target = FrozenTarget(given.target, device=default_device())
    drafter = target.load_drafter(given.drafter)
    table = CopyTable.of(given.drafter)
    written = generate_texts(
        target, prompts_of_file(given.prompts, given.target, given.questions), given.max_tokens, 0, 0
    )
    texts = [text for of_kind in written.values() for text in of_kind]
    tokens: list[Token] = []
    console = Console()
    if given.temperature:
        tokens, confidences = map(list, zip(*drawn(target, drafter, table, texts, given), strict=True))
        added, slope = regression(confidences, [token.accepted for token in tokens])
        values = [f'"own_sampled": [{added}], "slope": [{table.slope[0]}, {slope}]']
    else:
        clock = Clock()
        for text in track(texts, "texts"):
            tokens += drafted(target, drafter, table, text, given.longest, clock)
        values = [
            f"Host overhead (prompt lookup, draft lengths): {1000 * clock.seconds / clock.steps:.3f} ms per step.",
            f'"own": {fitted(tokens, DRAFTER, table.own)}',
            f'"copied": {fitted(tokens, PROMPT_LOOKUP, table.copied)}',
        ]
    found = calibration(tokens)
    console.print(found.to_rich())
    console.print("\n".join(values))
    if given.out is not None:
        given.out.write_text(found.to_markdown())


if __name__ == "__main__":
    sys.exit(main())
