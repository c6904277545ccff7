"""The common parts of all training commands: read data and target, then train, save, evaluate and report drafters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mtpc.files import provenance
from mtpc.lab.console import console
from mtpc.lab.evaluation.evaluate import EvaluationPlan, acceptance_table, evaluate_folders
from mtpc.lab.evaluation.prompts import Prompts, heldout_questions
from mtpc.lab.output_paths import check_new_folder, try_folder
from mtpc.lab.targets.folder import check_drafters
from mtpc.lab.targets.frozen import FrozenTarget, default_device
from mtpc.lab.text.conversations import Conversation, file_digest, read_conversations
from mtpc.lab.training.hidden_states import HiddenStateCache
from mtpc.lab.training.precision import training_dtype
from mtpc.lab.training.processes import Processes, end_processes
from mtpc.lab.training.recipe import DrafterRecipe
from mtpc.lab.training.trainer import Trainer, train_on
from mtpc.methods.drafter import save_drafter


class ConversationInputs(NamedTuple):
    """What a training on conversations starts from.

    Attributes:
        target: Frozen target, see `load_frozen_target`.
        conversations: Conversations to train on.
        states: Cache of the target's hidden states; None to compute them in every update.
        prompts: Held-out prompts to evaluate on; None if there are none.
        facts: Entries for provenance.json.
    """

    target: FrozenTarget
    conversations: list[Conversation]
    states: HiddenStateCache | None
    prompts: Prompts | None
    facts: dict[str, Any]


def load_frozen_target(folder: Path) -> FrozenTarget:
    """Return a target on this machine's device, in the dtype of matrix products in training.

    Args:
        folder: Folder of the target.
    """
    device = default_device()
    return FrozenTarget(folder, device=device, dtype=training_dtype(device))


def check_outputs(folders: Iterable[Path], resume: Path | None) -> None:
    """Check that checkpoints can be written, and that none replaces another model; the first of several processes does.

    Args:
        folders: Folders of the checkpoints.
        resume: State file. Where it exists, a training continues, and folders that hold something are allowed.

    Raises:
        MTPCError: A folder cannot be written, or it is neither new nor empty and no training is continued.
    """
    if not Processes.started().is_first:
        return
    for folder in folders:
        if resume is None or not resume.exists():
            check_new_folder(folder)
        try_folder(folder)


def prepare_training(
    target: Path, data: Path, states: Path | None, questions: int, starts: Sequence[Path] = ()
) -> ConversationInputs:
    """Read conversations, and load the target that generated them.

    Args:
        target: Folder of the target.
        data: Folder of conversations.
        states: Folder for hidden states of the target; None to store none.
        questions: Held-out questions per category to evaluate on.
        starts: Drafter checkpoints to start from.

    Returns:
        Inputs of the training.

    Raises:
        MTPCError: As `check_drafters`, `read_conversations` and `FrozenTarget`.
    """
    conversations = list(read_conversations(data))
    check_drafters(starts, target)
    frozen = load_frozen_target(target)
    prompts = heldout_questions(conversations, questions)
    return ConversationInputs(
        frozen,
        [each for each in conversations if not each.heldout],
        None if states is None else HiddenStateCache(states, frozen),
        prompts if any(prompts.by_kind.values()) else None,
        {"data_sha256": file_digest(data)},
    )


def train_and_score(
    recipe: DrafterRecipe,
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
        folder: Returns the folder of a drafter's checkpoint from its name.
        facts: Entries for provenance.json, in addition to those of the training.
        prompts: Held-out prompts to evaluate on; None to skip the evaluation.
        resume: State file, see `Trainer`.
        minutes: Time after which training ends, see `Trainer`.

    Raises:
        MTPCError: As `Trainer` and `mtpc.lab.evaluation.evaluate.evaluate_folders`.
    """
    target, trainer = recipe.target.folder, Trainer(recipe, resume=resume, minutes=minutes)
    is_first = trainer.processes.is_first
    terminal = console(quiet=not is_first)
    for line in recipe.notes():
        terminal.print(line)
    check_outputs((folder(learner.name) for learner in trainer.learners), resume)
    train_on(terminal, trainer)
    end_processes()
    if not is_first:
        return
    folders: dict[Path, dict[str, Any]] = {}
    for learner in trainer.learners:
        stated = {"target": target.name, **facts, "training": trainer.facts(learner)}
        folders[folder(learner.name)] = stated
        save_drafter(folder(learner.name), learner.model, stated)
        terminal.print(f"written to {folder(learner.name)}", soft_wrap=True)
    if prompts is not None:
        results = evaluate_folders(target, list(folders), prompts, EvaluationPlan(), terminal)
        for path, stated in folders.items():
            provenance.write(path, **stated, heldout_acceptance=results[path.name])
        terminal.print(acceptance_table(results).to_rich())
