"""A drafter of any draft method: its autoregressive part, its parallel part, and how both are read from and written to a directory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from mtpc.draft import MAX_DRAFTS
from mtpc.draft_length.budget import DraftBudget
from mtpc.errors import MTPCError
from mtpc.files.config_model import shown
from mtpc.files.target import Target, check_target
from mtpc.files.weights import WEIGHTS, read_weights, write_directory
from mtpc.memory import check_drafter_memory
from mtpc.methods import DrafterConfig, DraftMethod, method_of
from mtpc.parallel.part import ParallelPart
from mtpc.target_head.shared import SharedHead
from mtpc.vocabulary.settings import open_vocabularies
from mtpc.vocabulary.vocabularies import DraftVocabularies

if TYPE_CHECKING:
    from mtpc.autoregressive.part import AutoregressivePart


class Drafter(nn.Module):
    """The two parts of a drafter; each may be None."""

    def __init__(self, method: DraftMethod, config: DrafterConfig) -> None:
        super().__init__()
        self.method, self.config = method, config
        self.autoregressive: AutoregressivePart | None = method.autoregressive(config)
        self.parallel: ParallelPart | None = method.parallel(config)

    @classmethod
    def planned(cls, method: DraftMethod, config: DrafterConfig, name: str) -> Self:
        """One without memory: its tensors have names and shapes.  name: of what asks for it, for the error.

        Errors: `MTPCError` for one that the machine has no memory for, and see `check_parts`.
        """
        with torch.device("meta"):
            drafter = cls(method, config)
        drafter.check_parts(name)
        numbers = [parameter.numel() for parameter in drafter.parameters()]
        if config.autoregressive is not None:
            numbers.append(
                config.autoregressive.max_position_embeddings * config.autoregressive.head_dim
            )  # its rotary embedding
        if drafter.parallel is not None:
            numbers.append(math.prod(drafter.parallel.leaf_shape))
        check_drafter_memory(sum(numbers), name)
        return drafter

    def check_parts(self, name: str) -> None:
        """Check that both parts fit together; a method of another distribution may bring any.

        Args:
            name: Of what asks for the drafter, for the error.

        Raises:
            MTPCError: With the first rule that they break.
        """
        config, autoregressive, parallel = self.config, self.autoregressive is not None, self.parallel
        steps, owns = config.draft_steps, config.own_drafts > 0
        behind = 0 if steps is None or parallel is None else config.max_drafts - steps
        rules = {
            "has neither an autoregressive part nor a parallel part": not autoregressive and parallel is None,
            "states draft steps, but has no autoregressive part": not autoregressive and steps != 0,
            "has an autoregressive part, which must draft at least one token": autoregressive and steps == 0,
            "has a parallel part that needs an autoregressive part before it": (
                not autoregressive and parallel is not None and parallel.reads_autoregressive
            ),
            "has a parallel part that cannot follow an autoregressive part": (
                autoregressive and parallel is not None and not parallel.follows_autoregressive
            ),
            f"drafts up to {config.max_drafts} tokens, for which its parallel part is too short": (
                owns and parallel is not None and behind > parallel.max_drafts
            ),
        }
        for rule, broken in rules.items():
            if broken:
                raise MTPCError(f"{name} cannot be served: {self.method.title} {rule}.")

    def split(self, num_drafts: int) -> tuple[int, int]:
        """How many of K drafts are the autoregressive part's, and how many the parallel part's."""
        return split_drafts(self.config, num_drafts)

    def head(self, target: SharedHead) -> SharedHead:
        """The embedding and the output head that it drafts with, given the target's."""
        return target if self.autoregressive is None else self.autoregressive.head(target)

    def tensors(self) -> dict[str, Tensor]:
        """The weights by their names in ``model.safetensors``."""
        return {self.method.tensor_name(name): tensor for name, tensor in self.state_dict().items()}

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Take over weights by these names; there must be no more and no fewer."""
        self.load_state_dict({name: tensors[self.method.tensor_name(name)] for name in self.state_dict()})


def split_drafts(config: DrafterConfig, num_drafts: int) -> tuple[int, int]:
    """How many of K drafts are the autoregressive part's, and how many the parallel part's."""
    steps = num_drafts if config.draft_steps is None else min(config.draft_steps, num_drafts)
    return steps, num_drafts - steps


def draft_budget(config: DrafterConfig, num_drafts: int, copies: bool) -> DraftBudget:
    """Which of K draft tokens are the drafter's own: with prompt lookup those that it was made for."""
    tokens = min(config.own_drafts, num_drafts) if copies else num_drafts
    return DraftBudget(tokens, split_drafts(config, tokens)[0])


def check_drafts(config: DrafterConfig, drafts: Any, setting: str, drafter: Path | str, copies: bool = False) -> None:
    """Whether a drafter drafts so many tokens in a step.

    setting: what the user sets the number with, for the error.  copies: whether more tokens than it drafts are copied,
    `MAX_DRAFTS` at most.

    Errors: `MTPCError` for what is no whole number, or none that the drafter allows.
    """
    most = MAX_DRAFTS if copies else config.max_drafts
    if type(drafts) is not int or not 1 <= drafts <= most:
        raise MTPCError(f"{setting} is {shown(drafts)}, but with {drafter} it must be a whole number from 1 to {most}.")


def check_state(folder: Path, config: DrafterConfig, target: Target) -> None:
    """Check that the target has the hidden state that a drafter reads.

    Raises:
        MTPCError: Where it has too few layers.
    """
    below = None if config.autoregressive is None else config.autoregressive.state_below
    if below is not None and target.layers is not None and not 1 <= below < target.layers:
        raise MTPCError(
            f"{folder} reads the state below layer {below} of its target, but this one has layers 0 to "
            f"{target.layers - 1}."
        )


def draft_vocabularies(
    values: Mapping[str, Any], folder: Path, config: DrafterConfig, tokenizer: str | None = None
) -> DraftVocabularies | None:
    """Return the draft vocabularies of an autoregressive part; None: it drafts every token that its head has.

    Args:
        values: The user's settings, see `open_vocabularies`.
        folder: Of the drafter.
        config: Of the drafter.
        tokenizer: The target's, see `open_vocabularies`.

    Raises:
        MTPCError: For settings of a drafter with an output head of its own, and see `open_vocabularies`.
    """
    if config.autoregressive is None:
        return None
    if config.autoregressive.own_vocabulary is None:
        return open_vocabularies(values, folder, config.vocab_size, tokenizer)
    if values:
        raise MTPCError(f"a draft vocabulary is made of the target's output head, but {folder} has its own.")
    return None


def load_drafter(
    folder: Path | str,
    target: Target | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Drafter:
    """Read a drafter checkpoint strictly; ``target``, where given, must fit.

    Errors: `MTPCError` (see `mtpc.methods.method_of`, `DraftMethod.read_config`, `check_target`, `check_state` and
    `read_weights`).
    """
    folder = Path(folder)
    method = method_of(folder)
    config = method.read_config(folder)
    if target is not None:
        check_target(folder, config, target)
        check_state(folder, config, target)
    planned = Drafter.planned(method, config, str(folder / "config.json"))
    tensors = read_weights(folder, planned.tensors())
    drafter = Drafter(method, config)
    drafter.load_tensors(tensors)
    if drafter.autoregressive is not None and drafter.autoregressive.own is not None:
        drafter.autoregressive.own.check_tokens(folder / WEIGHTS, config.vocab_size)
    return drafter.to(device=device, dtype=dtype).requires_grad_(False).eval()


def save_drafter(folder: Path, drafter: Drafter, facts: dict[str, Any]) -> None:
    """Write a drafter checkpoint, weights in bfloat16; ``facts`` go into provenance.json."""
    write_directory(folder, drafter.method.to_json(drafter.config), drafter.tensors(), facts)
