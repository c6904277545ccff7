"""A published Gumiho checkpoint as a drafter checkpoint (`mtpc convert gumiho`)."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from mtpc.errors import MTPCError, first_line
from mtpc.files.config_model import declared
from mtpc.files.json_file import check_file, read_json
from mtpc.files.weights import check_tensor, check_type
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
INPUT_NORM = "input_layernorm.weight"  # of every layer but the first
# Keys of config.json that say nothing of what the layers compute: whether fc has a bias, the tensors tell.
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
    """What is read of a checkpoint's config.json, a Llama's."""

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
    """Write the drafter checkpoint of a checkpoint; its copy of the target's embedding is left behind.

    steps: drafts of the autoregressive part; how many the heads were trained behind is not written in a checkpoint, two in the
    paper.

    Errors: `MTPCError` with one sentence for a checkpoint of another layout, or whatever in it is not known.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise MTPCError(f"{folder} is there already; name a folder that is new or empty.")
    values = {key: value for key, value in read_json(source / CONFIG).items() if key not in WITHOUT_EFFECT}
    published = declared(GumihoCheckpointConfig, values, str(source / CONFIG))
    tensors = read_pickle(source / WEIGHTS)
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


def read_pickle(path: Path) -> dict[str, Tensor]:
    """The tensors of a file that torch has written; nothing in it is executed.

    Errors: `MTPCError` for a file that is missing, damaged, or holds anything but tensors of numbers.
    """
    check_file(path)
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # what torch raises over a file that is none, or another's, is of any kind
        raise MTPCError(f"{path} cannot be read as a file of tensors: {first_line(error)}.") from None
    if not isinstance(loaded, dict) or not all(isinstance(tensor, Tensor) for tensor in loaded.values()):
        raise MTPCError(f"{path} holds something else than tensors by their names.")
    for name, tensor in loaded.items():
        check_type(path, str(name), tensor)
    return {str(name): tensor for name, tensor in loaded.items()}


def count_heads(tensors: dict[str, Tensor], path: Path) -> tuple[int, int]:
    """How many heads there are, and how many residual layers each has.

    Errors: `MTPCError` where heads have other numbers of layers, or there is none.
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
    """The drafter's configuration.

    Errors: `MTPCError` for sizes that do not fit together.
    """
    own: dict[str, Any] = {
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
    return declared(GumihoConfig, own, str(path))


def rename_tensors(
    tensors: dict[str, Tensor], published: GumihoCheckpointConfig, config: GumihoConfig, path: Path
) -> dict[str, Tensor]:
    """The tensors by their names in a drafter; the two halves of fc change places, as here the state comes first.

    Errors: `MTPCError` for a tensor that is missing or unknown, or whose shape cannot be taken apart.
    """
    assert config.parallel is not None
    size, left = published.hidden_size, dict(tensors)

    def take(name: str, *shape: int) -> Tensor:
        if name not in left:
            raise MTPCError(f"{path}: the tensor {name!r} is missing.")
        tensor = left.pop(name)
        if shape and tensor.shape != shape:
            raise MTPCError(f"{path}: {name!r} has shape {list(tensor.shape)}, but {CONFIG} makes it {list(shape)}.")
        return tensor

    left.pop(EMBEDDING, None)
    of_token, of_state = take(FC, size, 2 * size).split(size, 1)
    bias = take(FC_BIAS, size) if FC_BIAS in left else torch.zeros(size)
    weights = {"serial.input_proj.weight": torch.cat([of_state, of_token], 1), "serial.input_proj.bias": bias}
    for layer in range(published.num_hidden_layers):
        for name in (*LAYER, *([INPUT_NORM] if layer else [])):
            weights[f"serial.blocks.{layer}.{name}"] = take(f"layers.{layer}.{name}")
    heads = range(config.parallel.positions)
    for layer in range(config.parallel.blocks + 1):
        own, into = ("heads.reduce", 2 * size) if layer == 0 else (f"heads.blocks.{layer - 1}", size)
        for kind, shape in (("weight", (size, into)), ("bias", (size,))):
            stacked = [take(f"{HEADS}{head}.{layer}.linear.{kind}", *shape) for head in heads]
            weights[f"window.{own}.{kind}"] = torch.stack(stacked)
    if left:
        raise MTPCError(f"{path}: the tensor {min(left)!r} is unknown to a Gumiho checkpoint of these sizes.")
    return weights
