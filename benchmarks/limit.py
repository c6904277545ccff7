r"""The most that choosing between copies and a drafter's drafts could bring where steps take what they take.

    python -m benchmarks.limit --target runs/smollm2 --drafter weights/smollm2-fastmtp --prompts questions.jsonl \
        --temperatures 0 0.8 --batch-sizes 1 4 16

Counted along what the target writes, not timed: in each step all that would be accepted of a copy and of the drafter's
draft is known, and those steps are taken that reach the end of the text soonest, with as many passes of the drafter as
they need.  Beside that, drafting always, and copying by the rule of vLLM's n-gram drafter; and, of a request alone at
T = 0, what is chosen by what can be known: copies as long as pay, and both together.  Prompts are read as well, by the
target alone.  In batches every request is taken to do as the one at hand.  What the servers of `benchmarks.copying` do
can come near the limit, and not beyond it but where a draft begins as the drafter's and goes on as a copy.  What they
take for themselves is not counted: by how much they fall behind what is chosen here, they lose that way.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from itertools import chain, product
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from rich.console import Console
from rich.progress import track

from benchmarks.arguments import one_sentence
from benchmarks.plain_loop import steps
from benchmarks.questions import prompts_of_files
from mtpc.draft_length.batch import BatchCopying
from mtpc.draft_length.budget import Own
from mtpc.draft_length.cost import MEASURED, StepCost
from mtpc.files.config_model import declared_json
from mtpc.lab.evaluation.scorer import step_acceptance
from mtpc.lab.evaluation.texts import Text, view, write_texts
from mtpc.lab.table import Table
from mtpc.lab.targets.frozen import FrozenTarget, default_device
from mtpc.methods.drafter import Drafter, load_drafter, own_drafts
from mtpc.prompt_lookup.match import History
from mtpc.prompt_lookup.table import CopyTable
from mtpc.target_head.shared import SharedHead

ALL = "all"
T = TypeVar("T")
SHORTEST, LONGEST, NGRAM = 2, 4, 5  # vLLM's n-gram drafter: tokens that match, and tokens that it drafts


class Row(NamedTuple):
    """What steps take of the time of a batch for each of its requests, all of which draft alike.

    own: what the drafter may draft.
    """

    cost: StepCost
    requests: int
    own: Own

    def prompt(self, tokens: int) -> float:
        """Reading a prompt, of which the first token of the answer comes."""
        return self.step(0) + self.cost.read(tokens) - self.cost.read(1)

    def step(self, drafts: int) -> float:
        """One that verifies so many drafts of each."""
        return self.cost.step(self.requests, self.requests * drafts) / self.requests

    def draft(self, drafts: int) -> float:
        """So many of the drafter's own."""
        return self.cost.draft(self.requests) * self.own.share(drafts) / self.requests


class Right(NamedTuple):
    """How many tokens would be accepted in a step from each place of a text, int64 [L].

    prompt: tokens of the text's prompt.  copied: of the longest copy.  ngram: of vLLM's n-gram drafter's, -1 where it
    drafts nothing.  drafter: of as many as it may draft itself.
    """

    prompt: int
    copied: np.ndarray
    ngram: np.ndarray
    drafter: np.ndarray


@torch.inference_mode()
def right(
    target: FrozenTarget,
    drafter: Drafter,
    text: Text,
    temperature: float,
    own: int,
    longest: int,
    rng: np.random.Generator,
) -> Right:
    """Along a text that the target wrote at this temperature, up to where less than a whole draft of it is left.

    own: tokens that the drafter may draft itself, no fewer than a whole draft; any may follow the text.
    """
    further = text.tokens[-1:] * (own - drafter.config.num_drafts)
    seen = view(target, text._replace(tokens=[*text.tokens, *further]))
    chances = step_acceptance(drafter, SharedHead.of(target.model), seen, own, temperature).numpy()
    accepted = np.cumprod(rng.random(chances.shape) < chances, axis=1).sum(1)
    history, copied, ngram = History(text.tokens[: text.start]), [], []
    for end in range(text.start + 1, text.start + 1 + len(chances)):
        history.append(text.tokens[end - 1 : end])
        matched, same = _copied(history, text.tokens[end : end + NGRAM], LONGEST)
        ngram.append(same if matched >= SHORTEST else -1)
        copied.append(_copied(history, text.tokens[end : end + longest], end)[1])
    return Right(text.start, np.array(copied), np.array(ngram), accepted)


def _copied(history: History, rest: Sequence[int], most: int) -> tuple[int, int]:
    """How many tokens match, ``most`` at most, and how many of as many copies as the rest has tokens are right."""
    match = history.longest_match(most)
    if not match.length:
        return 0, 0
    same = np.equal(history.continuation(match, len(rest)), rest)
    return match.length, int(np.cumprod(same).sum())


def soonest(found: Right, row: Row) -> float:
    """The least time in which steps from the first place get past the last, with all known beforehand."""
    length = len(found.copied)
    left = np.zeros(length + 1)
    for place in reversed(range(length)):
        ways = [row.step(0) + left[place + 1]]
        for best, own in ((found.copied[place], False), (found.drafter[place], True)):
            spent = [row.step(n) + own * row.draft(n) for n in range(1, best + 1)]
            ways += [time + left[min(place + n + 1, length)] for n, time in enumerate(spent, start=1)]
        left[place] = min(ways)
    return float(left[0])


class Chosen(NamedTuple):
    """Steps along a text with drafts as long as seems to pay: tokens that they say, and the time that they take.

    prompt: the time of reading the text's prompt.
    """

    tokens: int
    time: float
    prompt: float

    @classmethod
    def along(cls, text: Text, target: FrozenTarget, drafter: Drafter, copying: BatchCopying, row: Row) -> Chosen:
        """With a drafter and what may be copied; without its drafts where ``copying`` asks it for none."""
        taken = list(steps(target, drafter, copying, text))
        time = sum(row.step(len(step.tokens)) + row.draft(step.own) for step in taken)
        return cls(sum(1 + sum(step.right) for step in taken), time, row.prompt(text.start))


class Choice(NamedTuple):
    """Of a request alone that is greedy: copies alone, and both."""

    copies: Chosen
    both: Chosen

    @classmethod
    def along(
        cls, text: Text, target: FrozenTarget, drafter: Drafter, longest: int, copies: CopyTable, row: Row
    ) -> Choice:
        """As `Chosen.along`, of drafts of at most so many tokens."""
        ways = (BatchCopying(own, longest, row.cost, copies) for own in (Own(0), row.own))
        return cls(*(Chosen.along(text, target, drafter, copying, row) for copying in ways))


def always(accepted: np.ndarray, drafts: int, spent: float, row: Row) -> float:
    """The time where so many are drafted in each step; accepted: of them, -1 where nothing is drafted."""
    place, time = 0, 0.0
    while place < len(accepted):
        time += row.step(0) if accepted[place] < 0 else spent + row.step(drafts)
        place += min(max(0, int(accepted[place])), drafts) + 1
    return time


def speedups(texts: Sequence[Right], drafts: int, row: Row, plain: float) -> list[float]:
    """Of the n-gram drafter, the drafter and the limit, over steps of so much time that say one token."""
    prompts = sum(row.prompt(text.prompt) for text in texts)
    alone = plain * sum(len(text.copied) for text in texts)
    ngram = sum(always(text.ngram, NGRAM, 0.0, row) for text in texts)
    drafter = sum(always(text.drafter, drafts, row.draft(drafts), row) for text in texts)
    limit = sum(soonest(text, row) for text in texts)
    return [(prompts + alone) / (prompts + time) for time in (ngram, drafter, limit)]


def chosen_speedups(choices: Sequence[Choice], plain: float) -> list[float]:
    """Of copies alone and of both, over steps of so much time that say one token."""
    return [
        sum(one.prompt + plain * one.tokens for one in ways) / sum(one.prompt + one.time for one in ways)
        for ways in zip(*choices, strict=True)
    ]


def table(
    found: dict[str, list[Right]],
    drafts: int,
    row: Row,
    plain: float,
    title: str,
    chosen: Mapping[str, list[Choice]] | None = None,
) -> Table:
    """One row for each kind, and one for all; chosen: by kind too, None where nothing was."""
    columns = ["kind", "n-gram", "drafter", "limit"]
    if chosen is not None:
        columns = ["kind", "n-gram", "drafter", "copies that pay", "both that pay", "limit", "to the better"]
    rows = []
    for kind in [*found, ALL]:
        texts = of_kind(found, kind)
        if not any(len(text.copied) for text in texts):
            continue
        ngram, drafter, limit = speedups(texts, drafts, row, plain)
        cells = {"kind": kind, "n-gram": f"{ngram:.2f} x", "drafter": f"{drafter:.2f} x", "limit": f"{limit:.2f} x"}
        if chosen is not None:
            copies, both = chosen_speedups(of_kind(chosen, kind), plain)
            cells |= {"copies that pay": f"{copies:.2f} x", "both that pay": f"{both:.2f} x"}
            cells["to the better"] = f"{both / max(drafter, copies):.2f}"
        rows.append([cells[column] for column in columns])
    return Table(title, columns, rows)


def of_kind(found: Mapping[str, list[T]], kind: str) -> list[T]:
    """What belongs to one kind, or to all."""
    return list(chain(*found.values())) if kind == ALL else found[kind]


@one_sentence
def main() -> None:
    """Write texts at each temperature, count at each batch size, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--target", type=Path, required=True)
    add("--drafter", type=Path, required=True)
    add("--prompts", type=Path, nargs="+", required=True, help="JSON Lines, as for `mtpc bench`")
    add("--questions", type=int, default=2, help="of each kind (default: %(default)s)")
    add("--max-tokens", type=int, default=64, help="of an answer (default: %(default)s)")
    add("--longest", type=int, default=10, help="copy (default: %(default)s)")
    add("--temperatures", type=float, nargs="+", default=[0.0])
    add("--batch-sizes", type=int, nargs="+", default=[1])
    add("--step-cost", metavar="JSON", help="as `mtpc plan` prints it")
    add(
        "--plain",
        type=float,
        default=1.0,
        help="what a step takes in a server without a drafter, in steps of one that can draft (default: %(default)s)",
    )
    add("--out", type=Path, help="a file for the tables, as Markdown")
    given = parser.parse_args()
    target = FrozenTarget(given.target, device=default_device())
    drafter, console, tables = load_drafter(given.drafter, target.facts), Console(), []
    cost, own = MEASURED, own_drafts(drafter.family, drafter.config, given.longest)
    if given.step_cost is not None:
        cost = declared_json(StepCost, given.step_cost.encode(), "--step-cost is wrong")
    prompts = prompts_of_files(given.prompts, given.target, given.questions)
    found, chosen = {}, None
    for temperature in given.temperatures:
        rng = np.random.default_rng(0)
        written = write_texts(target, prompts, given.max_tokens, temperature, 0)
        found[temperature] = {
            kind: [right(target, drafter, text, temperature, own.most, given.longest, rng) for text in texts]
            for kind, texts in track(written.items(), f"T = {temperature:g}")
        }
        if not temperature:
            row, copies = Row(cost, 1, own), CopyTable.of(given.drafter)
            chosen = {
                kind: [Choice.along(text, target, drafter, given.longest, copies, row) for text in texts]
                for kind, texts in track(written.items(), "as seems to pay")
            }
    for temperature, requests in product(given.temperatures, given.batch_sizes):
        row = Row(cost.of(temperature == 0), requests, own)
        plain = given.plain * row.step(0)
        title = f"T = {temperature:g}, batch {requests}"
        of_row = chosen if requests == 1 and not temperature else None
        tables.append(table(found[temperature], drafter.config.num_drafts, row, plain, title, of_row))
        console.print(tables[-1].to_rich())
    if given.out is not None:
        given.out.write_text("\n".join(each.to_markdown() for each in tables))


if __name__ == "__main__":
    sys.exit(main())
