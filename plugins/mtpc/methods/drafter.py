"""A drafter of any draft method, and its checkpoint: reading, checking and writing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from mtpc.autoregressive.adapter_files import read_adapters, write_adapters
from mtpc.autoregressive.lora import LoRALayersConfig
from mtpc.draft import MAX_DRAFTS
from mtpc.draft_length.budget import DraftBudget
from mtpc.errors import MTPCError
from mtpc.files.config_model import short_repr
from mtpc.files.target import Target, check_target
from mtpc.files.weights import WEIGHTS, read_weights, write_directory
from mtpc.memory import check_drafter_memory
from mtpc.methods import DrafterConfig, DraftMethod, method_of
from mtpc.parallel.part import ParallelPart
from mtpc.target_head.shared import SharedHead
from mtpc.vocabulary.settings import open_vocabularies, parse_settings
from mtpc.vocabulary.vocabularies import NONE, DraftVocabularies

if TYPE_CHECKING:
    from mtpc.autoregressive.part import AutoregressivePart


class Drafter(nn.Module):
    """The two parts of a drafter.

    Attributes:
        method: The draft method.
        config: Its configuration.
        autoregressive: The autoregressive part, or None.
        parallel: The parallel part, or None.
    """

    def __init__(self, method: DraftMethod, config: DrafterConfig) -> None:
        super().__init__()
        self.method, self.config = method, config
        self.autoregressive: AutoregressivePart | None = method.autoregressive(config)
        self.parallel: ParallelPart | None = method.parallel(config)

    @classmethod
    def planned(cls, method: DraftMethod, config: DrafterConfig, name: str) -> Self:
        """Build a drafter on the device "meta": its tensors have names and shapes but no memory.

        Args:
            method: The draft method.
            config: Its configuration.
            name: What describes the drafter, for the error.

        Returns:
            A drafter that fits into the memory of this machine.

        Raises:
            MTPCError: Where the machine has too little memory, or the parts do not fit together (see `check_parts`).
        """
        with torch.device("meta"):
            drafter = cls(method, config)
        drafter.check_parts(name)
        numbers = [parameter.numel() for parameter in drafter.parameters()]
        if config.autoregressive is not None:
            rotary = config.autoregressive.max_position_embeddings * config.autoregressive.head_dim
            numbers.append(rotary)
        if drafter.parallel is not None:
            numbers.append(math.prod(drafter.parallel.leaf_shape))
        check_drafter_memory(sum(numbers), name)
        return drafter

    def check_parts(self, name: str) -> None:
        """Check that both parts fit together; a method of another package may have any.

        Args:
            name: What describes the drafter, for the error.

        Raises:
            MTPCError: With the first rule that is broken.
        """
        config, autoregressive, parallel = self.config, self.autoregressive is not None, self.parallel
        steps, owns = config.draft_steps, config.own_drafts > 0
        drafts = config.autoregressive is not None and config.autoregressive.drafts
        behind = 0 if steps is None or parallel is None else config.max_drafts - steps
        rules = {
            "has no part that drafts": not autoregressive and parallel is None and not self.method.reads_text,
            "has draft steps, but no autoregressive part": not autoregressive and steps != 0,
            "has an autoregressive part, which must draft at least one token": drafts and steps == 0,
            "has an autoregressive part that drafts nothing, so it must have no draft steps and a parallel part": (
                autoregressive and not drafts and (steps != 0 or parallel is None)
            ),
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
        """Return how many of K draft tokens are the autoregressive part's, and how many the parallel part's."""
        return split_drafts(self.config, num_drafts)

    def head(self, target: SharedHead) -> SharedHead:
        """Return the embedding and output head that it drafts with, given the target's."""
        return target if self.autoregressive is None else self.autoregressive.head(target)

    def tensors(self) -> dict[str, Tensor]:
        """Return the weights by their names in ``model.safetensors``."""
        adapters = self._adapter_names
        state = self.state_dict().items()
        return {self.method.tensor_name(name): tensor for name, tensor in state if name not in adapters}

    def adapters(self) -> dict[str, Tensor]:
        """Return the adapters of the target's layers by their names in peft's file; empty without any."""
        state = self.state_dict()
        return {peft: state[name] for name, peft in self._adapter_names.items()}

    @property
    def _adapter_names(self) -> dict[str, str]:
        """Names in peft's file by those in this module."""
        if self.autoregressive is None:
            return {}
        return {f"autoregressive.{name}": peft for name, peft in self.autoregressive.adapter_names.items()}

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Load weights by their names in ``model.safetensors``.

        Args:
            tensors: Exactly the tensors of `tensors` and `adapters`, no more and no fewer.
        """
        adapters = self._adapter_names
        names = {name: adapters.get(name) or self.method.tensor_name(name) for name in self.state_dict()}
        self.load_state_dict({name: tensors[stored] for name, stored in names.items()})


def split_drafts(config: DrafterConfig, num_drafts: int) -> tuple[int, int]:
    """Split K draft tokens between the parts.

    Args:
        config: Of the drafter.
        num_drafts: K.

    Returns:
        Draft tokens of the autoregressive part and of the parallel part.
    """
    steps = num_drafts if config.draft_steps is None else min(config.draft_steps, num_drafts)
    return steps, num_drafts - steps


def draft_budget(config: DrafterConfig, num_drafts: int, copies: bool) -> DraftBudget:
    """Return how many of K draft tokens each part drafts; prompt lookup drafts the rest.

    Args:
        config: Of the drafter.
        num_drafts: K.
        copies: Whether prompt lookup is on. The drafter then drafts at most the tokens that it was trained for.

    Returns:
        The budget of the drafter's own tokens.
    """
    tokens = min(config.own_drafts, num_drafts) if copies else num_drafts
    return DraftBudget(tokens, split_drafts(config, tokens)[0])


def check_drafts(config: DrafterConfig, drafts: Any, setting: str, drafter: Path | str, copies: bool = False) -> None:
    """Check a number of draft tokens per verification step.

    Args:
        config: Of the drafter.
        drafts: The user's value.
        setting: Name of the setting, for the error.
        drafter: The drafter checkpoint, for the error.
        copies: Whether prompt lookup is on, which allows up to `MAX_DRAFTS`.

    Raises:
        MTPCError: For a value that is not a whole number, or one that the drafter does not allow.
    """
    most = MAX_DRAFTS if copies else config.max_drafts
    if drafts is None:
        raise MTPCError(f"{setting} is missing: with {drafter} it must be a whole number from 1 to {most}.")
    if type(drafts) is not int or not 1 <= drafts <= most:
        raise MTPCError(
            f"{setting} is {short_repr(drafts)}, but with {drafter} it must be a whole number from 1 to {most}."
        )


def check_state(folder: Path, config: DrafterConfig, target: Target) -> None:
    """Check that the target has the hidden state that a drafter reads.

    Args:
        folder: The drafter checkpoint, for the error.
        config: Of the drafter.
        target: The target.

    Raises:
        MTPCError: Where it has too few layers.
    """
    below = None if config.autoregressive is None else config.autoregressive.state_below
    if below is not None and target.layers is not None and not 1 <= below < target.layers:
        raise MTPCError(
            f"{folder} reads the state below layer {below} of its target, but this target has layers 0 to "
            f"{target.layers - 1}."
        )
    needed = None if config.autoregressive is None else config.autoregressive.needs_layers
    if needed is not None and target.layers not in (None, needed):
        raise MTPCError(
            f"{folder} adapts the last layers of a target with {needed} layers, but this target has {target.layers}."
        )


def drafts_through_target_head(method: DraftMethod, config: DrafterConfig) -> bool:
    """Return whether the target's output head scores the draft tokens, all of its rows or those of a draft vocabulary.

    Args:
        method: The draft method.
        config: Of the drafter.
    """
    if config.autoregressive is not None and config.autoregressive.drafts:
        return config.autoregressive.own_vocabulary is None
    with torch.device("meta"):
        parallel = method.parallel(config)
    return parallel is not None and parallel.reads_head


def draft_vocabularies(
    values: Mapping[str, Any], folder: Path, method: DraftMethod, config: DrafterConfig, tokenizer: str | None = None
) -> DraftVocabularies | None:
    """Open the draft vocabularies of a drafter that drafts through the target's output head.

    Args:
        values: The user's settings, see `open_vocabularies`.
        folder: The drafter checkpoint.
        method: Its draft method.
        config: Of the drafter.
        tokenizer: The target's, see `open_vocabularies`.

    Returns:
        The draft vocabularies; None where the drafter scores every token that its head has.

    Raises:
        MTPCError: For settings of an autoregressive part with its own output head, and see `open_vocabularies`.
    """
    if drafts_through_target_head(method, config):
        return open_vocabularies(values, folder, config.vocab_size, tokenizer)
    if values and config.autoregressive is not None:
        raise MTPCError(f"a draft vocabulary restricts the target's output head, but {folder} has its own.")
    return None


def draft_language(values: Mapping[str, Any], folder: Path, method: DraftMethod, config: DrafterConfig) -> str:
    """Return the language whose draft vocabulary is used: its name, "auto", or "none" for the whole vocabulary.

    Args:
        values: The user's settings, see `open_vocabularies`.
        folder: The drafter checkpoint.
        method: Its draft method.
        config: Of the drafter.

    Raises:
        MTPCError: See `parse_settings`.
    """
    parsed = parse_settings(values, folder) if drafts_through_target_head(method, config) else None
    return NONE if parsed is None else parsed[1].language


def load_drafter(
    folder: Path | str,
    target: Target | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Drafter:
    """Read a drafter checkpoint strictly.

    Args:
        folder: The drafter checkpoint.
        target: Checked against the drafter where it is given.
        dtype: Of the weights.
        device: Of the weights.

    Returns:
        The drafter in evaluation mode, without gradients.

    Raises:
        MTPCError: For a wrong configuration or wrong weights, or a target that does not fit. See
            `mtpc.methods.method_of`, `DraftMethod.read_config`, `check_target`, `check_state` and `read_weights`.
    """
    folder = Path(folder)
    method = method_of(folder)
    config = method.read_config(folder)
    if target is not None:
        check_target(folder, config, target)
        check_state(folder, config, target)
    planned = Drafter.planned(method, config, str(folder / "config.json"))
    tensors = read_weights(folder, planned.tensors())
    if isinstance(config.autoregressive, LoRALayersConfig):
        tensors |= read_adapters(folder, config.autoregressive, planned.adapters())
    drafter = Drafter(method, config)
    drafter.load_tensors(tensors)
    if drafter.autoregressive is not None and drafter.autoregressive.own is not None:
        drafter.autoregressive.own.check_tokens(folder / WEIGHTS, config.vocab_size)
    if drafter.parallel is not None:
        drafter.parallel.loaded(folder / WEIGHTS)
    return drafter.to(device=device, dtype=dtype).requires_grad_(False).eval()


def save_drafter(folder: Path, drafter: Drafter, facts: dict[str, Any]) -> None:
    """Write a drafter checkpoint, with weights in bfloat16.

    Args:
        folder: The new checkpoint.
        drafter: The drafter.
        facts: Written to provenance.json.
    """
    write_directory(folder, drafter.method.to_json(drafter.config), drafter.tensors(), facts)
    if isinstance(drafter.config.autoregressive, LoRALayersConfig):
        write_adapters(folder, drafter.config.autoregressive, drafter.adapters())
