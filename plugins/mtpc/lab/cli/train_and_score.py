"""What every training command does once its recipe is known: train, save, score what was saved, and say so."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from mtpc.files import provenance
from mtpc.lab.console import console, progress_on
from mtpc.lab.evaluation.evaluate import Plan, evaluate_folders
from mtpc.lab.evaluation.prompts import Prompts
from mtpc.lab.evaluation.table import acceptance_table
from mtpc.lab.output_paths import try_folder
from mtpc.lab.training.recipe import Recipe
from mtpc.lab.training.trainer import Trainer
from mtpc.methods.drafter import save_drafter

LINES = 50  # that a whole training prints


def train_and_score(
    recipe: Recipe,
    target: Path,
    folder: Callable[[str], Path],
    facts: dict[str, Any],
    prompts: Prompts | None,
    resume: Path | None,
    minutes: float | None,
) -> None:
    """Train, write each drafter to ``folder(NAME)``, and score it there as `mtpc evaluate` does.

    facts: for provenance.json, beside the training's own.  prompts: held-out ones; None: the drafters are not scored.
    minutes: see `Trainer`.

    Errors: see `Trainer`, `mtpc.lab.evaluation.evaluate.evaluate`.
    """
    trainer, terminal = Trainer(recipe, resume=resume, minutes=minutes), console()
    for learner in trainer.learners:
        try_folder(folder(learner.name))
    run(trainer, terminal)
    folders: dict[Path, dict[str, Any]] = {}
    for learner in trainer.learners:
        stated = {"target": target.name, **facts, "training": trainer.facts(learner)}
        folders[folder(learner.name)] = stated
        save_drafter(folder(learner.name), learner.drafter, stated)
    if prompts is not None:
        results = evaluate_folders(target, list(folders), prompts, Plan())
        for path, stated in folders.items():
            provenance.write(path, **stated, heldout_acceptance=results[path.name])
        terminal.print(acceptance_table(results).to_rich())
    for path in folders:
        terminal.print(f"written to {path}")


def run(trainer: Trainer, terminal: Console) -> None:
    """Train with a progress bar, and a line now and then."""
    every = max(1, trainer.updates // LINES)
    with progress_on(terminal) as progress:
        bar = progress.add_task("updates", total=trainer.updates, completed=trainer.update)

        def show(update: int, losses: dict[str, float]) -> None:
            progress.update(bar, completed=update)
            if update % every == 0 or update == trainer.updates:
                rounded = {name: round(loss, 4) for name, loss in losses.items()}
                terminal.print(json.dumps({"update": update, **rounded}))

        trainer.run(show)
