"""An EAGLE layer made out of a FastMTP drafter: what folding its norms keeps, and the layout of the files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import PreTrainedModel

from benchmarks import eagle_layer
from mtpc.autoregressive.layer import DraftLayers
from mtpc.lab.text.conversations import FILE
from mtpc.lab.training.recipes.gumiho_recipe import config_for
from mtpc.methods.drafter import Drafter, save_drafter
from mtpc.methods.gumiho import Gumiho
from tests.engine.native_drafts import Eagle
from tests.mtpc.lab.training.conversations import make_conversations
from tests.support.tiny_models import SIZE, VOCAB, make_fastmtp, make_layer, make_target


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return make_target("llama")


@pytest.fixture
def layers(model: PreTrainedModel) -> DraftLayers:
    """One without outer norms."""
    found = Drafter(Gumiho(), config_for(model.config, None, num_hidden_layers=1, normed=False)).autoregressive
    assert isinstance(found, DraftLayers)
    return found.requires_grad_(False).eval()


def test_folded_norms_are_those_of_the_vectors_that_they_were_measured_on(
    model: PreTrainedModel, layers: DraftLayers
) -> None:
    normed, at = make_layer(model), torch.tensor([[0]])
    read = torch.randn(2, 1, 1, SIZE)  # one position: its size is the average
    eagle_layer.fold_norms(layers, normed, *read)
    torch.testing.assert_close(layers(*read, at), normed(*read, at), rtol=1e-4, atol=1e-5)
    other = 3 * torch.randn(2, 1, 1, SIZE)
    assert not torch.allclose(layers(*other, at), normed(*other, at), atol=0.1)


def test_ends_of_shorter_texts_do_not_change_the_sizes(model: PreTrainedModel, layers: DraftLayers) -> None:
    embeddings, states = torch.randn(2, 1, 6, SIZE)
    written = []
    for longer in (6, 9):
        padded = torch.zeros(2, 1, longer, SIZE)
        padded[:, :, :6] = torch.stack([embeddings, states])
        padded[0, :, 6:] = 5.0  # the embedding of the padding token
        eagle_layer.fold_norms(layers, make_layer(model), *padded)
        written.append({name: tensor.clone() for name, tensor in layers.state_dict().items()})
    torch.testing.assert_close(written[1], written[0])


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_the_dtype_of_older_configurations(key: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({key: "bfloat16"}))
    assert eagle_layer.dtype_of(tmp_path) == "bfloat16"


def test_the_map_to_the_next_state_is_found_and_texts_that_have_ended_do_not_count(layers: DraftLayers) -> None:
    expected = torch.randn(SIZE, 2 * SIZE) / SIZE
    embeddings, states = torch.randn(8, 40, SIZE), torch.randn(8, 41, SIZE)
    for place in range(40):
        states[:, place + 1] = torch.cat([states[:, place], embeddings[:, place]], -1) @ expected.T
    states[:4, 20:] = 0
    eagle_layer.map_to_next_states(layers, [(embeddings[::2], states[::2]), (embeddings[1::2], states[1::2])])
    torch.testing.assert_close(layers.input_proj.weight, expected, atol=0.02, rtol=0)
    after = layers(embeddings, states[:, :-1], torch.arange(40)[None])
    torch.testing.assert_close(after[4:], states[4:, 1:], atol=0.05, rtol=0)


def test_the_layer_is_written_in_eagles_layout(model: PreTrainedModel, layers: DraftLayers, tmp_path: Path) -> None:
    eagle_layer.fold_norms(layers, make_layer(model), *torch.randn(2, 1, 4, SIZE))
    model.save_pretrained(tmp_path / "target")
    eagle_layer.write_layer(tmp_path / "vllm", "vllm", layers, "float32")
    text, inner = torch.randint(VOCAB, (9,)).tolist(), model.model
    with torch.no_grad():
        states = inner(input_ids=torch.tensor([text[:-1]])).last_hidden_state
        after = inner.embed_tokens(torch.tensor([text[1:]]))
        expected = model.lm_head(layers(after, states, torch.arange(8)[None]))[0, -1]
    found = Eagle(tmp_path / "target", tmp_path / "vllm").logits(text, [])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("start", ["fastmtp", "target"])
def test_the_command_trains_and_writes_a_layer_for_each_engine(start: str, tmp_path: Path) -> None:
    model = make_target("llama" if start == "fastmtp" else "qwen2")
    model.save_pretrained(tmp_path / "target")
    arguments = [f"--{name}={tmp_path / name}" for name in ("target", "data", "out")]
    if start == "fastmtp":
        save_drafter(tmp_path / "fastmtp", make_fastmtp(model), {})
        arguments.append(f"--drafter={tmp_path / 'fastmtp'}")
    (tmp_path / "data").mkdir()
    conversations = make_conversations(model, 40)
    (tmp_path / "data" / FILE).write_text("\n".join(each.to_json() for each in conversations) + "\n")
    assert eagle_layer.main(arguments) == 0
    written = {engine: load_file(tmp_path / "out" / engine / "model.safetensors") for engine in ("vllm", "sglang")}
    assert written["sglang"].keys() - written["vllm"].keys() == {"fc.bias"}
    assert not written["sglang"].pop("fc.bias").any()
    torch.testing.assert_close(written["sglang"], written["vllm"], rtol=0, atol=0)
    facts = json.loads((tmp_path / "out" / "vllm" / "provenance.json").read_text())
    assert facts["training"]["updates"] == 5
    config = json.loads((tmp_path / "out" / "sglang" / "config.json").read_text())
    expected = {"num_hidden_layers": 1, "model_type": "llama", "architectures": ["LlamaForCausalLMEagle"]}
    assert config.items() >= expected.items()
    assert not config["tie_word_embeddings"]
    assert eagle_layer.main(arguments) == 2, "the folder is not empty"
