"""Acceptance of drafters of one target by kind of text and temperature: the numbers of `mtpc evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mtpc.errors import MTPCError
from mtpc.lab.evaluation.acceptance import Counts, counts_along
from mtpc.lab.evaluation.decoding import speculate
from mtpc.lab.evaluation.prompts import Prompts, check
from mtpc.lab.evaluation.scorer import step_acceptance
from mtpc.lab.evaluation.texts import Text, View, view, write_texts
from mtpc.lab.evaluation.trees import NO_TREES, Trees, check_trees, tree_acceptance
from mtpc.lab.table import Table
from mtpc.lab.targets.frozen import FrozenTarget, check_state, default_device
from mtpc.methods.drafter import Drafter, check_drafts, load_drafter
from mtpc.target_head.shared import SharedHead
from mtpc.verify import Rates, rates_from_counts

ALL = "all"  # kinds together
NO_EVIDENCE = "no evidence"  # the window with the target's own token summed out, not conditioned on
REAL_LOOP = "real loop"

# By drafter, or "DRAFTER, tree of SIZE", and by column ("code T=1", "all T=0, real loop"): `Counts.to_json`.
Results = dict[str, dict[str, dict[str, Any]]]


@dataclass(frozen=True)
class Plan:
    """What is computed.

    length: tokens that the target writes after each prompt, at most.  num_drafts: of a step, and of one path of a tree;
    None: as many as each drafter is made for.  loop: prompts of each kind that are decoded step by step as well.
    """

    temperatures: Sequence[float] = (1.0, 0.5, 0.0)
    length: int = 128
    num_drafts: int | None = None
    loop: int = 2
    trees: Trees = NO_TREES
    seed: int = 0


class Scored:
    """What is computed of one drafter along each text.

    Errors: `MTPCError` for more drafts than it can draft, trees that it cannot grow, a drafter that only copies, or one
    that reads a state between the target's layers.
    """

    def __init__(self, name: str, drafter: Drafter, head: SharedHead, plan: Plan) -> None:
        if not drafter.config.own_drafts:
            raise MTPCError(f"{name} only copies: there is nothing to score; `mtpc bench` measures what is accepted.")
        check_state(name, drafter.config)
        self.name, self.drafter, self.head, self.plan = name, drafter, drafter.head(head), plan
        self.drafts = drafter.config.num_drafts if plan.num_drafts is None else plan.num_drafts
        check_drafts(drafter.config, self.drafts, "the number of drafts", name)
        check_trees(drafter, self.head, plan.trees, self.drafts)

    def along(self, text: View, temperature: float) -> dict[tuple[str, str], Tensor]:
        """The acceptance of each draft, [L', K], by title and by what is special about it ("" where nothing is)."""
        drafter, parallel = self.drafter, self.drafter.parallel
        found = {(self.name, ""): step_acceptance(drafter, self.head, text, self.drafts, temperature)}
        if temperature == 1 and drafter.config.draft_steps == 0 and parallel is not None and parallel.num_evidence:
            blind = step_acceptance(drafter, self.head, text, self.drafts, temperature, conditioned=False)
            found[self.name, NO_EVIDENCE] = blind
        trees = tree_acceptance(drafter, self.head, text, self.plan.trees, temperature, self.drafts)
        return found | {(f"{self.name}, {title}", ""): accept for title, accept in trees.items()}


def evaluate(target: FrozenTarget, prompts: Prompts, drafters: dict[str, Drafter], plan: Plan) -> Results:
    """Score drafters, on the target's device, along what it writes after each prompt.

    Errors: `MTPCError` without a prompt, or where a drafter cannot draft what the plan asks for.
    """
    check(prompts, target.facts.vocab_size)
    head = SharedHead.of(target.model)
    scored = [Scored(name, drafter, head, plan) for name, drafter in drafters.items()]
    results: Results = {}
    for temperature in plan.temperatures:
        written = write_texts(target, prompts, plan.length, temperature, plan.seed)
        heat = f"T={temperature:g}"
        counts: dict[tuple[str, str], Counts] = {}  # of all kinds
        for kind, texts in written.items():
            for (title, note), found in counts_of(target, scored, texts, temperature).items():
                if not note:
                    results.setdefault(title, {})[f"{kind} {heat}"] = found.to_json()
                counts[title, note] = found.plus(counts[title, note]) if (title, note) in counts else found
        for (title, note), found in counts.items():
            results[title][", ".join(filter(None, (f"{ALL} {heat}", note)))] = found.to_json()
        few = [text for texts in written.values() for text in texts[: plan.loop]]
        for one in scored if few else ():
            rates = measured_acceptance(target, one.drafter, head, few, one.drafts, temperature, prompts, plan.seed)
            results[one.name][f"{ALL} {heat}, {REAL_LOOP}"] = rates.to_json()
    return results


def evaluate_folders(target: Path, folders: list[Path], prompts: Prompts, plan: Plan) -> Results:
    """Score drafters as they are saved, by their folders' names, against the target in float32.

    Folders of the same name are told apart by their paths.

    Errors: as `load_drafter` and `evaluate`.
    """
    device = default_device()
    frozen = FrozenTarget(target, device=device, dtype=torch.float32)
    unique = len({folder.name for folder in folders}) == len(folders)
    drafters = {
        folder.name if unique else str(folder): load_drafter(folder, frozen.facts, device=device) for folder in folders
    }
    return evaluate(frozen, prompts, drafters, plan)


def counts_of(
    target: FrozenTarget, scored: Sequence[Scored], texts: Sequence[Text], temperature: float
) -> dict[tuple[str, str], Counts]:
    """The expected numbers of steps and acceptances over texts of one kind; each text is looked at once for all."""
    accept: dict[tuple[str, str], list[Tensor]] = {}
    for text in texts:
        seen = view(target, text)
        for one in scored:
            for key, along in one.along(seen, temperature).items():
                accept.setdefault(key, []).append(along)
    return {key: counts_along(texts_of_key) for key, texts_of_key in accept.items()}


def measured_acceptance(
    target: FrozenTarget,
    drafter: Drafter,
    head: SharedHead,
    texts: Sequence[Text],
    num_drafts: int,
    temperature: float,
    prompts: Prompts,
    seed: int,
) -> Rates:
    """Acceptance of the real loop, which goes on from the same prompts to the same length."""
    generator = torch.Generator().manual_seed(seed)
    ends = prompts.ends(target)
    counts: list[int] = []
    for tokens, start in texts:
        length = len(tokens) - start
        decoded = speculate(
            target,
            drafter,
            head,
            tokens[:start],
            length,
            num_drafts,
            ends=ends,
            temperature=temperature,
            generator=generator,
        )
        counts += decoded.accepted
    return rates_from_counts(len(counts), [sum(count > i for count in counts) for i in range(num_drafts)])


def acceptance_table(results: Results) -> Table:
    """A row for each kind of text and temperature, a column for each drafter: tokens per step."""
    columns = list(dict.fromkeys(column for rates in results.values() for column in rates))
    rows = []
    for column in columns:
        rates = (of_drafter.get(column) for of_drafter in results.values())
        rows.append([column, *("-" if one is None else f"{one['acceptance_length']:.3f}" for one in rates)])
    title = "Expected acceptance length on held-out text (tokens per step)"
    return Table(title, ["text, temperature", *results], rows)
