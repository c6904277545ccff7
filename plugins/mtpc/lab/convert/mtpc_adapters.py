"""LoRA adapters of a published MTPC checkpoint (arXiv 2511.11346, section 3.3).

The adapters of the target's last layers have the names of peft after ``lm._lm.``. The sizes of these layers are not in
the checkpoint, but in the target's config.json.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from mtpc.autoregressive.lora import AdaptedModule, LoRALayersConfig, lora_of
from mtpc.errors import MTPCError, first_line
from mtpc.files.config_model import Strict, short_repr, validated
from mtpc.lab.convert.hydra_config import HydraConfig
from mtpc.lab.targets.folder import check_folder

ADAPTERS = "adaptor.hyperparameters"


class PublishedAdapters(Strict):
    """The keys of LoRA adapters in config.yaml, which are those of peft.

    Attributes:
        r: Rank of each adapter.
        lora_alpha: A low-rank product is scaled by ``lora_alpha / r``.
        lora_dropout: Of the training.
        target_modules: Adapted projections of each layer.
        layers_to_transform: Numbers of the adapted layers.
    """

    r: Annotated[int, Field(ge=1)]
    lora_alpha: Annotated[float, Field(gt=0)]
    lora_dropout: float = 0.0
    target_modules: list[AdaptedModule]
    layers_to_transform: list[int]


def published_name(name: str) -> str:
    """Return the name of a tensor in the checkpoint, where adapters have a name, by its name in peft's files."""
    return "lm._lm." + name.replace(".weight", ".default.weight")


def read_lora(
    published: HydraConfig, hidden_size: int, vocab_size: int, target: Path | None
) -> LoRALayersConfig | None:
    """Return the adapted layers; None without adapters.

    Args:
        published: Configuration of the checkpoint.
        hidden_size: d of the circuit's target.
        vocab_size: V of the circuit.
        target: Folder of the target, or None.

    Raises:
        MTPCError: Adapters without a target or a target without adapters, another target, or adapters of other than
            its last layers.
    """
    path, values = published.path, published.get(ADAPTERS)
    if values is None:
        if target is not None:
            raise MTPCError(f"{path} has no LoRA adapters, so --target has no effect: leave it out.")
        return None
    if target is None:
        raise MTPCError(f"{path} has LoRA adapters ({ADAPTERS}): name their target with --target.")
    adapters = validated(PublishedAdapters, values, f"{path} at {ADAPTERS}")
    numbers = sorted(adapters.layers_to_transform)
    keys = lora_of(read_target(target), len(numbers), adapters.r)
    for name, expected in (("hidden_size", hidden_size), ("vocab_size", vocab_size)):
        if keys[name] != expected:
            raise MTPCError(f"--target {target} has {name} {keys[name]}, but the circuit of {path} has {expected}.")
    layers = keys["target_layers"]
    if not numbers or numbers != list(range(layers - len(numbers), layers)):
        raise MTPCError(
            f"{path} has adapters of layers {short_repr(numbers)}, but only those of the last of the {layers} layers "
            f"of {target} can be converted."
        )
    keys |= {"alpha": adapters.lora_alpha, "modules": adapters.target_modules}
    return validated(LoRALayersConfig, keys, f"{path} at {ADAPTERS}, with the layers of {target},")


def read_target(folder: Path) -> Any:
    """Return the configuration of a target in transformers.

    Raises:
        MTPCError: The folder holds no model or a drafter, or transformers cannot read it without code of its own.
    """
    from transformers import AutoConfig

    check_folder(folder)
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers raises any exception for a damaged file
        raise MTPCError(f"{folder / 'config.json'} cannot be read: {first_line(error)}.") from None
