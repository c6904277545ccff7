"""Acceptance of drafters by kind of text and temperature, for `mtpc evaluate`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from mtpc.errors import MTPCError
from mtpc.lab.console import console, progress_on
from mtpc.lab.evaluation.acceptance import ExpectedCounts, counts_along
from mtpc.lab.evaluation.decoding import speculate
from mtpc.lab.evaluation.prompts import Prompts, check_prompts
from mtpc.lab.evaluation.rates import Rates, rates_from_counts
from mtpc.lab.evaluation.scorer import step_acceptance
from mtpc.lab.evaluation.texts import GeneratedText, TextFeatures, generate_texts, text_features
from mtpc.lab.evaluation.trees import NO_TREES, TreeSettings, check_trees, tree_acceptance
from mtpc.lab.table import Table
from mtpc.lab.targets.folder import check_drafters
from mtpc.lab.targets.frozen import FrozenTarget, check_state, default_device, state_below
from mtpc.lab.text.chat_template import load_tokenizer
from mtpc.methods.drafter import Drafter, check_drafts
from mtpc.target_head.shared import SharedHead
from mtpc.vocabulary.token_bytes import token_bytes

ALL = "all"  # all kinds of text together
NO_EVIDENCE = "no evidence"  # the parallel part with the target's token summed out, instead of conditioned on it
REAL_LOOP = "real loop"

# By drafter, or "DRAFTER, tree of SIZE", and by column ("code T=1", "all T=0, real loop"): `Counts.to_json`.
Results = dict[str, dict[str, dict[str, Any]]]

# Called with what is computed, and with the texts that one drafter has been scored on since the last call: 0 or 1.
Progress = Callable[[str, int], None]


@dataclass(frozen=True)
class EvaluationPlan:
    """Settings of an evaluation.

    Attributes:
        temperatures: Sampling temperatures; 0 is greedy.
        length: Longest output that the target generates per prompt, in tokens.
        num_drafts: Draft tokens K per step, and depth of a tree. None uses the number that each drafter is made for.
        loop: Prompts of each kind that are also decoded step by step.
        trees: Draft trees to evaluate.
        seed: Seed of the sampling.
    """

    temperatures: Sequence[float] = (1.0, 0.5, 0.0)
    length: int = 128
    num_drafts: int | None = None
    loop: int = 2
    trees: TreeSettings = NO_TREES
    seed: int = 0


class DrafterScorer:
    """Evaluation of one drafter along texts of the target.

    Args:
        name: Name of the drafter in the results.
        drafter: Drafter on the target's device.
        head: Output head of the target.
        plan: Settings of the evaluation.

    Raises:
        MTPCError: The drafter cannot draft that many tokens or such trees, has no drafter tokens but prompt lookup, or
            does not read the target's last hidden states.
    """

    def __init__(self, name: str, drafter: Drafter, head: SharedHead, plan: EvaluationPlan) -> None:
        if not drafter.config.own_drafts:
            raise MTPCError(
                f"{name} only copies (prompt lookup), which cannot be scored; measure it with `mtpc bench`."
            )
        check_state(name, drafter)
        self.name, self.drafter, self.head, self.plan = name, drafter, drafter.head(head), plan
        self.drafts = drafter.config.num_drafts if plan.num_drafts is None else plan.num_drafts
        check_drafts(drafter.config, self.drafts, "the number of drafts", name)
        check_trees(drafter, self.head, plan.trees, self.drafts)

    def acceptance(self, text: TextFeatures, temperature: float) -> dict[tuple[str, str], Tensor]:
        """Return the conditional acceptance along a text.

        Args:
            text: Text with the target's features.
            temperature: Temperature of target and drafter; 0 is greedy.

        Returns:
            Acceptance probability of each draft token, float64 [L', K], by title and note. The note is "" or
            `NO_EVIDENCE`.
        """
        drafter, parallel, text = self.drafter, self.drafter.parallel, text.read_by(self.drafter)
        accept = {(self.name, ""): step_acceptance(drafter, self.head, text, self.drafts, temperature)}
        if temperature == 1 and drafter.config.draft_steps == 0 and parallel is not None and parallel.num_evidence:
            unconditioned = step_acceptance(drafter, self.head, text, self.drafts, temperature, conditioned=False)
            accept[self.name, NO_EVIDENCE] = unconditioned
        trees = tree_acceptance(drafter, self.head, text, self.plan.trees, temperature, self.drafts)
        return accept | {(f"{self.name}, {title}", ""): of_tree for title, of_tree in trees.items()}


def evaluate(
    target: FrozenTarget,
    prompts: Prompts,
    drafters: dict[str, Drafter],
    plan: EvaluationPlan,
    terminal: Console | None = None,
) -> Results:
    """Evaluate drafters along what the target generates after each prompt.

    Args:
        target: Frozen target.
        prompts: Prompts to generate after.
        drafters: Drafters on the target's device, by name.
        plan: Settings of the evaluation.
        terminal: Console for a progress bar. None shows none.

    Returns:
        Figures by drafter and column, see `Results`.

    Raises:
        MTPCError: There is no prompt, or a drafter does not support the plan.
    """
    check_prompts(prompts, target.facts.vocab_size)
    longest = max(len(prompt) for of_kind in prompts.by_kind.values() for prompt in of_kind)
    length = min(plan.length, target.max_positions - longest)
    if length < 2:
        raise MTPCError(f"a prompt has {longest} tokens, but {target.folder} reads {target.max_positions} in all.")
    head = SharedHead.of(target.model)
    scorers = [DrafterScorer(name, drafter, head, plan) for name, drafter in drafters.items()]
    results: Results = {}
    with scoring_bar(terminal or console(quiet=True), prompts, plan, len(scorers)) as progress:
        for temperature in plan.temperatures:
            label = f"T={temperature:g}"
            progress(f"{label}: output of the target", 0)
            texts_by_kind = generate_texts(target, prompts, length, temperature, plan.seed)
            totals: dict[tuple[str, str], ExpectedCounts] = {}  # over all kinds
            for kind, texts in texts_by_kind.items():
                for (title, note), counts in counts_of(target, scorers, texts, temperature, progress).items():
                    if not note:
                        results.setdefault(title, {})[f"{kind} {label}"] = counts.to_json()
                    totals[title, note] = counts.plus(totals[title, note]) if (title, note) in totals else counts
            for (title, note), counts in totals.items():
                results[title][", ".join(filter(None, (f"{ALL} {label}", note)))] = counts.to_json()
            decoded = [text for texts in texts_by_kind.values() for text in texts[: plan.loop]]
            for scorer in scorers if decoded else ():
                progress(f"{label}: reference loop", 0)
                rates = measured_acceptance(
                    target, scorer.drafter, head, decoded, scorer.drafts, temperature, prompts, plan.seed
                )
                results[scorer.name][f"{ALL} {label}, {REAL_LOOP}"] = rates.to_json()
    return results


def evaluate_folders(
    target: Path, folders: list[Path], prompts: Prompts, plan: EvaluationPlan, terminal: Console | None = None
) -> Results:
    """Evaluate saved drafters with the target in float32, with a progress bar.

    Args:
        target: Folder of the target.
        folders: Drafter checkpoints. They are named by folder name, or by path where names repeat.
        prompts: Prompts to generate after.
        plan: Settings of the evaluation.
        terminal: Console for the progress bar. None uses that of all commands.

    Returns:
        Figures by drafter and column, see `Results`.

    Raises:
        MTPCError: A folder cannot be loaded, or as `evaluate`.
    """
    check_drafters(folders, target)
    frozen = FrozenTarget(target, device=default_device(), dtype=torch.float32)
    unique = len({folder.name for folder in folders}) == len(folders)
    drafters = {folder.name if unique else str(folder): frozen.load_drafter(folder) for folder in folders}
    for name, drafter in drafters.items():
        check_vocabulary(name, drafter, target)
    return evaluate(frozen, prompts, drafters, plan, terminal or console())


@contextmanager
def scoring_bar(terminal: Console, prompts: Prompts, plan: EvaluationPlan, drafters: int) -> Iterator[Progress]:
    """Show a progress bar over prompts, temperatures and drafters, and yield what moves it."""
    texts = sum(map(len, prompts.by_kind.values()))
    with progress_on(terminal) as progress:
        bar = progress.add_task("evaluation", total=texts * len(plan.temperatures) * drafters)
        yield lambda stage, scored: progress.update(bar, description=stage, advance=scored)


def check_vocabulary(name: str, drafter: Drafter, target: Path) -> None:
    """Check that a drafter that spells the tokens of its target was trained for this tokenizer.

    Args:
        name: Name of the drafter, for the error.
        drafter: The drafter.
        target: Folder of the target.

    Raises:
        MTPCError: The tokenizer has other tokens, or cannot be loaded.
    """
    expected = drafter.config.model_dump().get("target_tokens")
    if expected is not None and token_bytes(load_tokenizer(target)).digest() != expected:
        raise MTPCError(f"{name} was trained for another vocabulary than that of {target}: train it for this target.")


def counts_of(
    target: FrozenTarget,
    scorers: Sequence[DrafterScorer],
    texts: Sequence[GeneratedText],
    temperature: float,
    progress: Progress = lambda stage, scored: None,
) -> dict[tuple[str, str], ExpectedCounts]:
    """Return the expected counts over texts of one kind, with one target forward pass per text.

    Args:
        target: Frozen target.
        scorers: Drafters to evaluate.
        texts: Texts that the target generated.
        temperature: Temperature of target and drafters; 0 is greedy.
        progress: Called for every text and drafter, see `Progress`.

    Returns:
        Counts by title and note, see `DrafterScorer.acceptance`.
    """
    accept: dict[tuple[str, str], list[Tensor]] = {}
    below = {layer for scorer in scorers if (layer := state_below(scorer.drafter)) is not None}
    for text in texts:
        features = text_features(target, text, below)
        for scorer in scorers:
            for key, of_text in scorer.acceptance(features, temperature).items():
                accept.setdefault(key, []).append(of_text)
            progress(f"T={temperature:g}: acceptance", 1)
    return {key: counts_along(texts_of_key) for key, texts_of_key in accept.items()}


def measured_acceptance(
    target: FrozenTarget,
    drafter: Drafter,
    head: SharedHead,
    texts: Sequence[GeneratedText],
    num_drafts: int,
    temperature: float,
    prompts: Prompts,
    seed: int,
) -> Rates:
    """Return the acceptance of actual decoding after the same prompts and to the same lengths."""
    generator = torch.Generator().manual_seed(seed)
    end_tokens = prompts.end_tokens(target)
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
            end_tokens=end_tokens,
            temperature=temperature,
            generator=generator,
        )
        counts += decoded.accepted
    return rates_from_counts(len(counts), [sum(count > i for count in counts) for i in range(num_drafts)])


def acceptance_table(results: Results) -> Table:
    """Format the acceptance lengths as a table.

    Args:
        results: Figures as `evaluate` returns them.

    Returns:
        Table with a row per kind of text and temperature, and a column per drafter.
    """
    columns = list(dict.fromkeys(column for rates in results.values() for column in rates))
    rows = []
    for column in columns:
        rates = (of_drafter.get(column) for of_drafter in results.values())
        rows.append([column, *("-" if one is None else f"{one['acceptance_length']:.3f}" for one in rates)])
    title = "Expected acceptance length on held-out text (tokens per target forward pass)"
    return Table(title, ["text, temperature", *results], rows)
