"""`mtpc convert fastmtp` on small random checkpoints, against the layer in plain tensors and transformers' own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import Qwen2Config
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer, Qwen2RMSNorm, Qwen2RotaryEmbedding
from typer.testing import CliRunner

from mtpc.autoregressive.layer import DraftLayers
from mtpc.errors import MTPCError
from mtpc.files.target import Target
from mtpc.lab.cli.main import app
from mtpc.lab.convert.fastmtp import convert_config, convert_fastmtp
from mtpc.lab.evaluation.reference import ReferenceDrafter
from mtpc.methods.drafter import load_drafter
from mtpc.target_head.shared import SharedHead
from tests.mtpc.lab.convert.mimo_checkpoint import FASTMTP, MIMO, random_weights, write_checkpoint
from tests.oracles.draft_layers import DraftLayersOracle, greedy
from tests.support.tiny_models import SIZE, VOCAB

PREFIX = "model.mtp_layers.0."
PUBLISHED = {"FastMTP": FASTMTP, "MiMo-7B-RL": MIMO}
LENGTH, DRAFTS = 9, 3


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_converted_layer_drafts_as_the_checkpoints_tensors_do(name: str, shards: int, tmp_path: Path) -> None:
    weights = write_checkpoint(tmp_path / name, PUBLISHED[name], shards=shards)
    convert_fastmtp(tmp_path / name, tmp_path / "drafter")
    drafter = load_drafter(tmp_path / "drafter", Target(SIZE, VOCAB))
    assert drafter.config.num_drafts == (3 if name == "FastMTP" else 1)
    mtp = {key: tensor for key, tensor in weights.items() if key.startswith(PREFIX)}
    assert all(torch.equal(tensor, mtp[key].float()) for key, tensor in drafter.tensors().items())
    embedding, unembedding = (weights[key].float() for key in ("model.embed_tokens.weight", "lm_head.weight"))
    oracle = DraftLayersOracle(
        convert_config(tmp_path / name / "config.json").autoregressive, mtp, embedding, unembedding
    )
    torch.manual_seed(1)
    hidden, text = torch.randn(LENGTH - 1, SIZE), torch.randint(VOCAB, (LENGTH,))
    expected, _ = oracle.draft(hidden, text.tolist(), DRAFTS, greedy)
    draft = ReferenceDrafter(drafter, SharedHead(embedding, unembedding)).draft(hidden[None], text[None, 1:], DRAFTS)
    assert draft.tokens[0].tolist() == expected


def transformers_step(config: dict[str, Any], weights: dict[str, Tensor], previous: Tensor, tokens: Tensor) -> Tensor:
    """One step of the published layer out of transformers' own parts: previous [1, T, d], tokens [1, T]."""
    qwen = Qwen2Config.from_dict({**config, "attn_implementation": "eager"})
    own = {key.removeprefix(PREFIX): tensor.float() for key, tensor in weights.items() if key.startswith(PREFIX)}
    norms = {}
    for name in ("token_layernorm", "hidden_layernorm", "final_layernorm"):
        norms[name] = Qwen2RMSNorm(SIZE, config["rms_norm_eps"])
        norms[name].weight.data = own.pop(f"{name}.weight")
    projection = own.pop("input_proj.weight")
    block = Qwen2DecoderLayer(qwen, 0)
    block.load_state_dict(own)
    embeddings = norms["token_layernorm"](weights["model.embed_tokens.weight"].float()[tokens])
    z = torch.cat([norms["hidden_layernorm"](previous), embeddings], -1) @ projection.T
    length = tokens.shape[1]
    positions = torch.arange(length)[None]
    mask = torch.full((length, length), -torch.inf).triu(1)[None, None]
    rotary = Qwen2RotaryEmbedding(qwen)(z, positions)
    out: Tensor = norms["final_layernorm"](block(z, attention_mask=mask, position_embeddings=rotary))
    return out


def test_the_states_are_those_of_transformers_layer(tmp_path: Path) -> None:
    weights = write_checkpoint(tmp_path / "source", FASTMTP)
    layer = convert_fastmtp(tmp_path / "source", tmp_path / "drafter").autoregressive
    assert layer is not None
    torch.manual_seed(1)
    previous, tokens = torch.randn(1, LENGTH, SIZE), torch.randint(VOCAB, (1, LENGTH))
    expected = transformers_step(FASTMTP, weights, previous, tokens)
    embeddings = weights["model.embed_tokens.weight"].float()[tokens]
    found = layer(embeddings, previous, torch.arange(LENGTH)[None])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_nothing_but_the_mtp_layer_is_read(tmp_path: Path) -> None:
    weights = random_weights()
    trunk = {key: weights[key] for key in weights if not key.startswith(PREFIX)}
    source = tmp_path / "source"
    write_checkpoint(source, FASTMTP, weights, shards=2)
    index = json.loads((source / "model.safetensors.index.json").read_text())
    for key in trunk:
        if key != "model.embed_tokens.weight":  # whose shape is compared with the configuration
            index["weight_map"][key] = "model-not-downloaded.safetensors"
    (source / "model.safetensors.index.json").write_text(json.dumps(index))
    convert_fastmtp(source, tmp_path / "drafter")
    provenance = json.loads((tmp_path / "drafter" / "provenance.json").read_text())
    assert provenance["source"] == "source"
    assert provenance["source_files"] == ["config.json", *(f"model-0000{i}-of-00002.safetensors" for i in (1, 2))]


def test_a_configuration_that_transformers_5_has_written(tmp_path: Path) -> None:
    config = {key: value for key, value in MIMO.items() if key not in ("rope_theta", "rope_scaling", "torch_dtype")}
    config |= {"rope_parameters": {"rope_theta": 640000, "rope_type": "default"}, "dtype": "bfloat16"}
    write_checkpoint(tmp_path / "new", config)
    write_checkpoint(tmp_path / "old", MIMO)
    found, expected = (convert_config(tmp_path / name / "config.json") for name in ("new", "old"))
    assert found == expected


def test_the_published_sizes_make_the_published_number_of_parameters(tmp_path: Path) -> None:
    sizes = {"hidden_size": 4096, "intermediate_size": 11008, "vocab_size": 151680, "num_hidden_layers": 36}
    heads = {"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}
    (tmp_path / "config.json").write_text(json.dumps({**FASTMTP, **sizes, **heads, "layer_types": ["full_attention"]}))
    with torch.device("meta"):
        layer = DraftLayers(convert_config(tmp_path / "config.json").autoregressive)
    assert sum(weight.numel() for weight in layer.parameters()) == pytest.approx(210.8e6, abs=0.05e6)  # paper, 3.1


Change = Callable[[dict[str, Any], dict[str, Tensor]], object]


def config(**values: Any) -> Change:
    return lambda found, _: found.update(values)


def tensors(**values: Tensor | None) -> Change:
    """Replace, add or, with None, take away tensors of the MTP layer."""

    def change(_: dict[str, Any], found: dict[str, Tensor]) -> None:
        for name, value in values.items():
            key = PREFIX + name.replace("__", ".") + ".weight"
            found.pop(key) if value is None else found.update({key: value})

    return change


REFUSED: dict[str, tuple[Change, str]] = {
    "another architecture": (config(architectures=["Qwen3ForCausalLM"]), "only ['MiMoForCausalLM'] is converted"),
    "an unknown key": (config(qk_norm=True), "the key 'qk_norm' is unknown"),
    "a missing key": (lambda found, _: found.pop("intermediate_size"), "the key 'intermediate_size' is missing"),
    "no number": (config(hidden_size="16"), "hidden_size must be a positive number, but is '16'"),
    "another activation": (config(hidden_act="gelu"), "hidden_act is 'gelu', but only 'silu'"),
    "two MTP layers": (config(num_nextn_predict_layers=2), "num_nextn_predict_layers is 2, but only 1"),
    "scaled positions": (config(rope_scaling={"type": "yarn"}), "rope_scaling is {'type': 'yarn'}, but only None"),
    "sliding windows": (config(layer_types=["sliding_attention"]), "must all be 'full_attention'"),
    "no rotation": (lambda found, _: found.pop("rope_theta"), "either 'rope_theta' or 'rope_parameters'"),
    "another rotation": (
        lambda found, _: (found.pop("rope_theta"), found.update(rope_parameters={"rope_type": "yarn"})),
        "must hold rope_theta and the rope_type 'default'",
    ),
    "heads at odds": (config(num_key_value_heads=3), "must be a multiple of num_key_value_heads"),
    "no MTP layer": (
        lambda _, found: [found.pop(key) for key in list(found) if key.startswith(PREFIX)],
        "the tensor 'model.mtp_layers.0.final_layernorm.weight' is missing",
    ),
    "a missing tensor": (tensors(input_proj=None), "'model.mtp_layers.0.input_proj.weight' is missing"),
    "an unknown tensor": (tensors(self_attn__q_norm=torch.ones(8)), "'model.mtp_layers.0.self_attn.q_norm.weight' is"),
    "a layer too many": (
        lambda _, found: found.update({"model.layers.2.input_layernorm.weight": torch.ones(SIZE)}),
        "'model.layers.2.input_layernorm.weight' is unknown to a MiMo checkpoint of 2 layers",
    ),
    "a second MTP layer": (
        lambda _, found: found.update({"model.mtp_layers.1.input_proj.weight": torch.ones(SIZE, 2 * SIZE)}),
        "'model.mtp_layers.1.input_proj.weight' is unknown",
    ),
    "a wrong shape": (tensors(input_proj=torch.ones(2 * SIZE, SIZE)), f"has shape [{2 * SIZE}, {SIZE}], but"),
    "quantised": (tensors(input_proj=torch.ones(SIZE, 2 * SIZE).to(torch.float8_e4m3fn)), "is of type torch.float8"),
    "no finite number": (tensors(final_layernorm=torch.full((SIZE,), torch.inf)), "not finite"),
    "another vocabulary": (config(vocab_size=VOCAB + 1), f"has shape [{VOCAB}, {SIZE}], but config.json requires"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_unknown_is_refused_with_one_sentence(case: str, tmp_path: Path) -> None:
    change, expected = REFUSED[case]
    values, weights = dict(FASTMTP), random_weights()
    change(values, weights)
    write_checkpoint(tmp_path / "source", values, weights)
    check_refusal(tmp_path / "source", tmp_path / "drafter", expected)


def check_refusal(source: Path, folder: Path, expected: str) -> None:
    """One sentence that names where it was found, and no drafter checkpoint."""
    with pytest.raises(MTPCError) as caught:
        convert_fastmtp(source, folder)
    message = str(caught.value)
    assert expected in message
    assert "\n" not in message
    assert message.endswith(".")
    assert message.startswith(str(source))
    assert not folder.exists()


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda source: (source / "config.json").unlink(), "config.json is missing"),
    "no JSON": (lambda source: (source / "config.json").write_text("{"), "cannot be read as JSON"),
    "no object": (lambda source: (source / "config.json").write_text("[]"), "a JSON object was expected"),
    "no safetensors": (
        lambda source: [path.unlink() for path in source.glob("model*")],
        "holds neither model.safetensors.index.json nor model.safetensors",
    ),
    "no map": (lambda source: (source / "model.safetensors.index.json").write_text("{}"), "has no 'weight_map'"),
    "a missing shard": (lambda source: (source / "model-00002-of-00003.safetensors").unlink(), "00003.safetensors is"),
    "a damaged shard": (
        lambda source: (source / "model-00002-of-00003.safetensors").write_bytes(b"x" * 64),
        "is damaged or not a safetensors file",
    ),
    "a file elsewhere": (
        lambda source: (source / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": {"lm_head.weight": "../other.safetensors"}})
        ),
        "which is not a file in the folder",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_download_is_refused_with_one_sentence(case: str, tmp_path: Path) -> None:
    break_it, expected = BROKEN[case]
    write_checkpoint(tmp_path / "source", FASTMTP)
    break_it(tmp_path / "source")
    check_refusal(tmp_path / "source", tmp_path / "drafter", expected)


def test_a_file_that_lacks_what_the_index_names(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "source", FASTMTP)
    path = tmp_path / "source" / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    files = index["weight_map"]
    key = PREFIX + "input_proj.weight"
    files[key] = next(file for file in sorted(set(files.values())) if file != files[key])
    path.write_text(json.dumps(index))
    check_refusal(tmp_path / "source", tmp_path / "drafter", f"does not hold the tensor '{key}'")


def test_the_command(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "source", MIMO)
    given = ["convert", "fastmtp", str(tmp_path / "source"), str(tmp_path / "drafter"), "--num-drafts", "2"]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.output
    assert f"hidden size {SIZE} and vocabulary {VOCAB}, 2 draft tokens per step" in done.output
    assert load_drafter(tmp_path / "drafter").config.num_drafts == 2
    again = CliRunner().invoke(app, given)
    assert again.exit_code == 2
    assert "already exists" in again.stderr
