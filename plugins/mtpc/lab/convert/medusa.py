"""Conversion of published Medusa heads into a drafter checkpoint (`mtpc convert medusa`).

Head i reads the target's last state, after the final norm, and was trained on the token i + 2 positions after that of
the state (FasterDecoding/Medusa, medusa/train/train_legacy.py). The first head therefore drafts the token after the one
that the target samples.

config.json may state fewer heads than the file holds: that of FasterDecoding/medusa-vicuna-7b-v1.3 has 2 of 5. The file
counts.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Annotated, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from mtpc.errors import MTPCError
from mtpc.files.config_model import validated
from mtpc.files.json_file import is_there, read_json
from mtpc.files.weights import check_tensor
from mtpc.lab.convert.checkpoint import Checkpoint
from mtpc.lab.convert.tensor_file import read_tensors
from mtpc.lab.output_paths import check_new_folder
from mtpc.lab.targets.folder import stated_sizes
from mtpc.methods.drafter import Drafter, save_drafter
from mtpc.methods.medusa import Medusa, MedusaConfig

CONFIG, OUTPUT = "config.json", "lm_head.weight"
WEIGHTS = ("medusa_lm_head.safetensors", "medusa_lm_head.pt", "model.safetensors")  # the last is that of vLLM's layout
# The target's output head, or its embedding where both are one.
TARGET_OUTPUT = (OUTPUT, "model.embed_tokens.weight")
VLLM_KEYS = {"num_heads": "medusa_num_heads", "num_hidden_layers": "medusa_num_layers"}
VLLM_LAYER = re.compile(r"blocks\.(\d+)\.layers\.(\d+)\.(weight|bias)")
VLLM_OUTPUT = re.compile(r"lm_heads\.(\d+)\.weight")
# Keys of config.json that do not change what the heads compute. The tensors show whether layers have a bias.
WITHOUT_EFFECT = {
    "_name_or_path",
    "architectures",
    "base_model_name_or_path",
    "dtype",
    "hidden_size",
    "max_paths",
    "max_seq_len",
    "medusa_fc_bias",
    "model_type",
    "topk",
    "torch_dtype",
    "transformers_version",
    "version",
}


class MedusaCheckpointConfig(BaseModel):
    """Keys that are read of a checkpoint's config.json, by the names of Medusa's own code and of vLLM's."""

    model_config = ConfigDict(extra="forbid", strict=True)

    medusa_num_heads: Annotated[int, Field(ge=1)]
    medusa_num_layers: Annotated[int, Field(ge=0)] = 1
    original_lm_head: bool = False
    vocab_size: int | None = None
    truncated_vocab_size: int | None = None
    logit_scale: Annotated[float, Field(ge=1, le=1)] = 1.0

    @model_validator(mode="after")
    def _has_all_tokens(self) -> Self:
        if self.truncated_vocab_size not in (None, self.vocab_size):
            raise ValueError("truncated_vocab_size must be vocab_size, as heads over fewer tokens are not converted")
        return self


def convert_medusa(source: Path, target: Path, folder: Path) -> Drafter:
    """Convert published heads.

    Args:
        source: Folder of the published checkpoint.
        target: Folder of the target. Its output head is copied where the heads have no output layers of their own.
        folder: Drafter checkpoint to write. It must be new or empty.

    Returns:
        The drafter that was written.

    Raises:
        MTPCError: ``folder`` is not empty, the target states no sizes or has others than the heads, or the checkpoint
            has another layout or unknown keys or tensors.
    """
    check_new_folder(folder)
    sizes = stated_sizes(target)
    if sizes is None:
        raise MTPCError(f"{target / CONFIG} has no hidden_size and vocab_size, the sizes of the target.")
    values = {VLLM_KEYS.get(key, key): value for key, value in read_json(source / CONFIG).items()}
    values = {key: value for key, value in values.items() if key not in WITHOUT_EFFECT}
    published = validated(MedusaCheckpointConfig, values, str(source / CONFIG))
    layers, path = published.medusa_num_layers, weights_file(source)
    tensors = {published_name(name, layers): tensor for name, tensor in read_tensors(path).items()}
    shared = published.original_lm_head or f"0.{layers}.weight" not in tensors
    config = validated(
        MedusaConfig,
        {
            "heads": count_heads(tensors, published.medusa_num_heads, path),
            "layers": layers,
            "shared_output": shared,
            "hidden_size": sizes.hidden_size,
            "vocab_size": sizes.vocab_size,
        },
        str(path),
    )
    expected = Drafter.planned(Medusa(), config, str(path)).tensors()
    if shared and OUTPUT not in tensors:
        tensors[OUTPUT] = (
            tensors.pop(f"0.{layers}.weight") if f"0.{layers}.weight" in tensors else target_output(target)
        )
    weights = rename_tensors(tensors, config, path)
    for name, tensor in weights.items():
        check_tensor(path, name, tensor, expected[name])
    drafter = Drafter(Medusa(), config)
    drafter.load_tensors(weights)
    drafter.requires_grad_(False).eval()
    facts = {
        "source": source.name,
        "source_config_sha256": hashlib.sha256((source / CONFIG).read_bytes()).hexdigest(),
        "source_weights_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "target": target.name,
    }
    save_drafter(folder, drafter, facts)
    return drafter


def weights_file(source: Path) -> Path:
    """Return the file of the heads.

    Raises:
        MTPCError: There is none.
    """
    for name in WEIGHTS:
        if is_there(source / name):
            return source / name
    raise MTPCError(f"{source} holds no Medusa heads: none of {', '.join(WEIGHTS)} is there.")


def published_name(name: str, layers: int) -> str:
    """Return the name of a tensor in Medusa's own layout, given its name in that or in vLLM's.

    Args:
        name: Name in the file.
        layers: Residual layers of each head.
    """
    name = name.removeprefix("medusa_heads.")
    if found := VLLM_LAYER.fullmatch(name):
        return f"{found[1]}.{found[2]}.linear.{found[3]}"
    if found := VLLM_OUTPUT.fullmatch(name):
        return f"{found[1]}.{layers}.weight"
    return name


def count_heads(tensors: dict[str, Tensor], stated: int, path: Path) -> int:
    """Return the number of heads in the file, which may be more than stated.

    Args:
        tensors: Tensors by their names in Medusa's own layout.
        stated: Heads that config.json states.
        path: File of the tensors, for an error.

    Raises:
        MTPCError: There are fewer heads.
    """
    heads = 1 + max((int(first) for name in tensors if (first := name.partition(".")[0]).isdecimal()), default=-1)
    if heads < stated:
        raise MTPCError(f"{path} holds {heads} heads, but {CONFIG} states {stated}.")
    return heads


def target_output(target: Path) -> Tensor:
    """Return the target's output head, [V, d].

    Args:
        target: Folder of the target.

    Raises:
        MTPCError: There is none under a known name.
    """
    checkpoint = Checkpoint(target)
    for name in TARGET_OUTPUT:
        if name in checkpoint.files:
            return checkpoint.read([name])[name]
    raise MTPCError(f"{target} holds none of {', '.join(TARGET_OUTPUT)}, which heads without output layers share.")


def rename_tensors(tensors: dict[str, Tensor], config: MedusaConfig, path: Path) -> dict[str, Tensor]:
    """Return the tensors by their names in a drafter.

    Args:
        tensors: Tensors by their names in Medusa's own layout, and `OUTPUT` where the output layer is shared.
        config: Configuration of the drafter.
        path: File of the tensors, for errors.

    Raises:
        MTPCError: A tensor is missing or unknown, or has another shape.
    """
    remaining, size, heads = dict(tensors), config.hidden_size, range(config.heads)

    def take(name: str, *shape: int) -> Tensor:
        if name not in remaining:
            raise MTPCError(f"{path}: the tensor {name!r} is missing.")
        tensor = remaining.pop(name)
        if tensor.shape != shape:
            raise MTPCError(f"{path}: {name!r} has shape {list(tensor.shape)}, but the target requires {list(shape)}.")
        return tensor

    weights = {}
    for layer in range(config.layers):
        names = [f"{head}.{layer}.linear" for head in heads]
        weights[f"layers.{layer}.weight"] = torch.stack([take(f"{name}.weight", size, size) for name in names])
        biases = [take(f"{name}.bias", size) if f"{name}.bias" in remaining else torch.zeros(size) for name in names]
        weights[f"layers.{layer}.bias"] = torch.stack(biases)
    outputs = [OUTPUT] if config.shared_output else [f"{head}.{config.layers}.weight" for head in heads]
    for number, name in enumerate(outputs):
        weights[f"outputs.{number}.weight"] = take(name, config.vocab_size, size)
    if remaining:
        raise MTPCError(f"{path}: the tensor {min(remaining)!r} is unknown to a Medusa checkpoint of these sizes.")
    return weights
