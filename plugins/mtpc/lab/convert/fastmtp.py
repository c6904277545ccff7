"""Conversion of the MTP layer of a MiMo or FastMTP checkpoint into a drafter checkpoint (`mtpc convert fastmtp`)."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from mtpc.errors import MTPCError
from mtpc.files.config_model import short_repr, validated
from mtpc.files.json_file import read_json
from mtpc.files.weights import check_tensor
from mtpc.lab.convert import mimo
from mtpc.lab.convert.checkpoint import Checkpoint
from mtpc.lab.output_paths import check_new_folder
from mtpc.methods.drafter import Drafter, save_drafter
from mtpc.methods.fastmtp import FastMTP, FastMTPConfig

CONFIG = "config.json"


def convert_fastmtp(source: Path, folder: Path, num_drafts: int | None = None) -> Drafter:
    """Convert the MTP layer of a checkpoint. No other weights are read.

    Args:
        source: Folder of the published checkpoint.
        folder: Drafter checkpoint to write. It must be new or empty.
        num_drafts: Draft tokens K. None takes the number that the checkpoint was trained for, or 1 if it states none.

    Returns:
        The drafter that was written.

    Raises:
        MTPCError: ``folder`` is not empty, or the checkpoint has another layout or unknown keys or tensors.
    """
    check_new_folder(folder)
    config = convert_config(source / CONFIG, num_drafts)
    checkpoint = Checkpoint(source)
    shapes = Drafter.planned(FastMTP(), config, str(source / CONFIG)).tensors()
    check_names(checkpoint, read_json(source / CONFIG)[mimo.LAYERS], set(shapes))
    if mimo.EMBEDDING in checkpoint.files:
        found, expected = checkpoint.shape(mimo.EMBEDDING), [config.vocab_size, config.hidden_size]
        if found != expected:
            raise MTPCError(f"{source}: {mimo.EMBEDDING!r} has shape {found}, but {CONFIG} requires {expected}.")
    weights = checkpoint.read(shapes)
    for name, tensor in weights.items():
        check_tensor(source / checkpoint.files[name], name, tensor, shapes[name])
    drafter = Drafter(FastMTP(), config)
    drafter.load_tensors(weights)
    drafter.requires_grad_(False).eval()
    facts = {
        "source": source.name,
        "source_files": sorted({CONFIG, *(checkpoint.files[name] for name in shapes)}),
        "source_config_sha256": hashlib.sha256((source / CONFIG).read_bytes()).hexdigest(),
    }
    save_drafter(folder, drafter, facts)
    return drafter


def convert_config(path: Path, num_drafts: int | None = None) -> FastMTPConfig:
    """Return the drafter's configuration.

    Args:
        path: config.json of the published checkpoint.
        num_drafts: Draft tokens K, see `convert_fastmtp`.

    Raises:
        MTPCError: The architecture or a value is not supported, or a key is unknown or missing.
    """
    values = read_json(path)
    if values.get("architectures") != [mimo.ARCHITECTURE]:
        found = values.get("architectures")
        raise MTPCError(f"{path}: architectures is {short_repr(found)}, but only {[mimo.ARCHITECTURE]!r} is converted.")
    known = mimo.READ | set(mimo.FIXED) | mimo.WITHOUT_EFFECT | {mimo.LAYER_TYPES}
    for key in sorted(set(values) - known):
        raise MTPCError(f"{path}: the key {key!r} is unknown and may change the layer, so it is not supported.")
    for key, expected in mimo.FIXED.items():
        if key in values and values[key] != expected:
            raise MTPCError(f"{path}: {key} is {short_repr(values[key])}, but only {expected!r} is supported.")
    layer_types = values.get(mimo.LAYER_TYPES) or []
    if not isinstance(layer_types, list) or any(each != mimo.LAYER_TYPE for each in layer_types):
        raise MTPCError(f"{path}: {mimo.LAYER_TYPES} must all be {mimo.LAYER_TYPE!r}.")
    for key in (*mimo.SIZES, mimo.LAYERS, mimo.EPSILON):
        if key not in values:
            raise MTPCError(f"{path}: the key {key!r} is missing.")
        types = (int, float) if key == mimo.EPSILON else (int,)
        if type(values[key]) not in types or not values[key] > 0:
            raise MTPCError(f"{path}: {key} must be a positive number, but is {short_repr(values[key])}.")
    config = {
        "layer": "qwen2",
        **{key: values[key] for key in mimo.SIZES},
        "head_dim": values.get(mimo.HEAD_DIM) or values["hidden_size"] // values["num_attention_heads"],
        "attention_bias": True,
        "rms_norm_eps": float(values[mimo.EPSILON]),
        "rope_parameters": rope(path, values),
        "num_drafts": num_drafts or values.get(mimo.STEPS, 1),
    }
    return validated(FastMTPConfig, config, str(path))


def rope(path: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of the rotary embedding, in the form of transformers 5."""
    if (mimo.ROPE in values) == (mimo.THETA in values):
        raise MTPCError(f"{path}: expected either {mimo.THETA!r} or {mimo.ROPE!r}.")
    if mimo.THETA in values:
        return {"rope_theta": values[mimo.THETA], "rope_type": "default"}
    found = values[mimo.ROPE]
    if not isinstance(found, dict) or set(found) != {"rope_theta", "rope_type"} or found["rope_type"] != "default":
        raise MTPCError(
            f"{path}: {mimo.ROPE} must hold rope_theta and the rope_type 'default', but is {short_repr(found)}."
        )
    return found


def check_names(checkpoint: Checkpoint, layers: int, expected: set[str]) -> None:
    """Check the tensor names of a checkpoint.

    Args:
        checkpoint: Published checkpoint.
        layers: Number of layers of the whole model.
        expected: Tensor names of the drafter.

    Raises:
        MTPCError: A tensor of the MTP layer is missing, or any tensor is unknown.
    """
    table = {mimo.MTP_PREFIX + name for name in mimo.MTP_LAYER}
    assert table == expected
    numbers = range(min(layers, len(checkpoint.files)))  # a wrong number of layers must not exhaust memory
    trunk = {mimo.TRUNK_LAYER.format(i) + name for i in numbers for name in mimo.DECODER_LAYER}
    for name in sorted(table - set(checkpoint.files)):
        raise MTPCError(f"{checkpoint.folder}: the tensor {name!r} is missing.")
    for name in sorted(set(checkpoint.files) - table - trunk - set(mimo.TRUNK)):
        raise MTPCError(f"{checkpoint.folder}: the tensor {name!r} is unknown to a MiMo checkpoint of {layers} layers.")
