"""The common part of all training commands: train a recipe, save the drafters, evaluate and report them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mtpc.files import provenance
from mtpc.lab.console import console
from mtpc.lab.evaluation.evaluate import EvaluationPlan, acceptance_table, evaluate_folders
from mtpc.lab.evaluation.prompts import Prompts
from mtpc.lab.output_paths import try_folder
from mtpc.lab.training.processes import end_processes
from mtpc.lab.training.recipe import DrafterRecipe
from mtpc.lab.training.trainer import Trainer, train_on
from mtpc.methods.drafter import save_drafter


def train_and_score(
    recipe: DrafterRecipe,
    target: Path,
    folder: Callable[[str], Path],
    facts: dict[str, Any],
    prompts: Prompts | None,
    resume: Path | None,
    minutes: float | None,
) -> None:
    """Train drafters, save each one, and evaluate the saved checkpoints as `mtpc evaluate` does.

    Of several processes the first one prints, saves and evaluates.

    Args:
        recipe: What is trained.
        target: Folder of the target.
        folder: Returns the folder of a drafter's checkpoint from its name.
        facts: Entries for provenance.json, in addition to those of the training.
        prompts: Held-out prompts to evaluate on; None to skip the evaluation.
        resume: State file, see `Trainer`.
        minutes: Time after which training ends, see `Trainer`.

    Raises:
        MTPCError: As `Trainer` and `mtpc.lab.evaluation.evaluate.evaluate_folders`.
    """
    trainer = Trainer(recipe, resume=resume, minutes=minutes)
    is_first = trainer.processes.is_first
    terminal = console(quiet=not is_first)
    for line in recipe.notes():
        terminal.print(line)
    for learner in trainer.learners:
        try_folder(folder(learner.name))
    train_on(terminal, trainer)
    end_processes()
    if not is_first:
        return
    folders: dict[Path, dict[str, Any]] = {}
    for learner in trainer.learners:
        stated = {"target": target.name, **facts, "training": trainer.facts(learner)}
        folders[folder(learner.name)] = stated
        save_drafter(folder(learner.name), learner.model, stated)
    if prompts is not None:
        results = evaluate_folders(target, list(folders), prompts, EvaluationPlan())
        for path, stated in folders.items():
            provenance.write(path, **stated, heldout_acceptance=results[path.name])
        terminal.print(acceptance_table(results).to_rich())
    for path in folders:
        terminal.print(f"written to {path}")
