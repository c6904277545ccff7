"""Conversion of a published Gumiho checkpoint into a drafter checkpoint (`mtpc convert gumiho`)."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from mtpc.errors import MTPCError
from mtpc.files.config_model import validated
from mtpc.files.json_file import read_json
from mtpc.files.weights import check_tensor
from mtpc.lab.convert.tensor_file import read_tensors
from mtpc.lab.output_paths import check_new_folder
from mtpc.methods.drafter import Drafter, save_drafter
from mtpc.methods.gumiho import Gumiho, GumihoConfig

CONFIG, WEIGHTS = "config.json", "pytorch_model.bin"
EMBEDDING, FC, FC_BIAS, HEADS = "embed_tokens.weight", "fc.weight", "fc.bias", "mlp."
LAYER = (
    "self_attn.q_proj.weight",
    "self_attn.k_proj.weight",
    "self_attn.v_proj.weight",
    "self_attn.o_proj.weight",
    "post_attention_layernorm.weight",
    "mlp.gate_proj.weight",
    "mlp.up_proj.weight",
    "mlp.down_proj.weight",
)
INPUT_NORM = "input_layernorm.weight"  # every layer has one but the first
# Keys of config.json that do not change what the layers compute. The tensors show whether fc has a bias.
WITHOUT_EFFECT = {
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "bias",
    "bos_token_id",
    "dtype",
    "eos_token_id",
    "initializer_range",
    "pad_token_id",
    "pretraining_tp",
    "tie_word_embeddings",
    "torch_dtype",
    "transformers_version",
    "use_cache",
}
Size = Annotated[int, Field(ge=1)]


class GumihoCheckpointConfig(BaseModel):
    """Keys that are read of a checkpoint's config.json, which is a Llama's."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model_type: Literal["llama"]
    hidden_act: Literal["silu"] = "silu"
    attention_bias: Literal[False] = False
    mlp_bias: Literal[False] = False
    rope_scaling: None = None
    hidden_size: Size
    intermediate_size: Size
    num_attention_heads: Size
    num_key_value_heads: Size | None = None
    num_hidden_layers: Size
    vocab_size: Size
    max_position_embeddings: Size
    rms_norm_eps: float
    rope_theta: float = 10000.0


def convert_gumiho(source: Path, folder: Path, steps: int = 2) -> Drafter:
    """Convert a published checkpoint, without its copy of the target's embedding.

    Args:
        source: Folder of the published checkpoint.
        folder: Drafter checkpoint to write. It must be new or empty.
        steps: Draft tokens of the autoregressive part. A checkpoint does not state them; Gumiho has two.

    Returns:
        The drafter that was written.

    Raises:
        MTPCError: ``folder`` is not empty, or the checkpoint has another layout or unknown keys or tensors.
    """
    check_new_folder(folder)
    values = {key: value for key, value in read_json(source / CONFIG).items() if key not in WITHOUT_EFFECT}
    published = validated(GumihoCheckpointConfig, values, str(source / CONFIG))
    tensors = read_tensors(source / WEIGHTS)
    config = convert_config(published, count_heads(tensors, source / WEIGHTS), steps, source / CONFIG)
    drafter = Drafter.planned(Gumiho(), config, str(source / CONFIG))
    weights, expected = rename_tensors(tensors, published, config, source / WEIGHTS), drafter.tensors()
    for name, tensor in weights.items():
        check_tensor(source / WEIGHTS, name, tensor, expected[name])
    drafter = Drafter(Gumiho(), config)
    drafter.load_tensors(weights)
    drafter.requires_grad_(False).eval()
    facts = {
        "source": source.name,
        "source_config_sha256": hashlib.sha256((source / CONFIG).read_bytes()).hexdigest(),
        "source_weights_sha256": hashlib.sha256((source / WEIGHTS).read_bytes()).hexdigest(),
    }
    save_drafter(folder, drafter, facts)
    return drafter


def count_heads(tensors: dict[str, Tensor], path: Path) -> tuple[int, int]:
    """Return the number of heads and the number of residual layers in each.

    Raises:
        MTPCError: There is no head, or the heads differ in their number of layers.
    """
    layers: dict[int, int] = {}
    while f"{HEADS}{len(layers)}.0.linear.weight" in tensors:
        head, count = len(layers), 0
        while f"{HEADS}{head}.{count}.linear.weight" in tensors:
            count += 1
        layers[head] = count
    if len(set(layers.values())) != 1:
        raise MTPCError(
            f"{path}: expected heads of equal depth, '{HEADS}0.0.linear.weight' and on, but found {layers}."
        )
    return len(layers), layers[0] - 1


def convert_config(published: GumihoCheckpointConfig, heads: tuple[int, int], steps: int, path: Path) -> GumihoConfig:
    """Return the drafter's configuration.

    Args:
        published: Configuration of the checkpoint.
        heads: Number of heads and residual layers, see `count_heads`.
        steps: Draft tokens of the autoregressive part.
        path: config.json of the checkpoint, for errors.

    Raises:
        MTPCError: Sizes do not fit together.
    """
    config: dict[str, Any] = {
        "layer": "llama",
        "num_hidden_layers": published.num_hidden_layers,
        "normed": False,
        "hidden_size": published.hidden_size,
        "vocab_size": published.vocab_size,
        "intermediate_size": published.intermediate_size,
        "num_attention_heads": published.num_attention_heads,
        "num_key_value_heads": published.num_key_value_heads or published.num_attention_heads,
        "head_dim": published.hidden_size // published.num_attention_heads,
        "attention_bias": False,
        "rms_norm_eps": published.rms_norm_eps,
        "rope_parameters": {"rope_type": "default", "rope_theta": published.rope_theta},
        "max_position_embeddings": published.max_position_embeddings,
        "steps": steps,
        "parallel": {"positions": heads[0], "blocks": heads[1]},
    }
    return validated(GumihoConfig, config, str(path))


def rename_tensors(
    tensors: dict[str, Tensor], published: GumihoCheckpointConfig, config: GumihoConfig, path: Path
) -> dict[str, Tensor]:
    """Return the tensors by their names in a drafter.

    The two halves of fc are swapped, because a drafter reads the state first.

    Args:
        tensors: Tensors of the checkpoint.
        published: Configuration of the checkpoint.
        config: Configuration of the drafter.
        path: File of the tensors, for errors.

    Raises:
        MTPCError: A tensor is missing or unknown, or has another shape.
    """
    assert config.parallel is not None
    size, remaining = published.hidden_size, dict(tensors)

    def take(name: str, *shape: int) -> Tensor:
        if name not in remaining:
            raise MTPCError(f"{path}: the tensor {name!r} is missing.")
        tensor = remaining.pop(name)
        if shape and tensor.shape != shape:
            raise MTPCError(f"{path}: {name!r} has shape {list(tensor.shape)}, but {CONFIG} requires {list(shape)}.")
        return tensor

    remaining.pop(EMBEDDING, None)
    of_token, of_state = take(FC, size, 2 * size).split(size, 1)
    bias = take(FC_BIAS, size) if FC_BIAS in remaining else torch.zeros(size)
    weights = {"serial.input_proj.weight": torch.cat([of_state, of_token], 1), "serial.input_proj.bias": bias}
    for layer in range(published.num_hidden_layers):
        for name in (*LAYER, *([INPUT_NORM] if layer else [])):
            weights[f"serial.blocks.{layer}.{name}"] = take(f"layers.{layer}.{name}")
    heads = range(config.parallel.positions)
    for layer in range(config.parallel.blocks + 1):
        module, width = ("heads.reduce", 2 * size) if layer == 0 else (f"heads.blocks.{layer - 1}", size)
        for kind, shape in (("weight", (size, width)), ("bias", (size,))):
            stacked = [take(f"{HEADS}{head}.{layer}.linear.{kind}", *shape) for head in heads]
            weights[f"window.{module}.{kind}"] = torch.stack(stacked)
    if remaining:
        raise MTPCError(f"{path}: the tensor {min(remaining)!r} is unknown to a Gumiho checkpoint of these sizes.")
    return weights
