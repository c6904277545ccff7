"""`mtpc convert gumiho`: a checkpoint in the published layout against a plain forward pass written from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

from mtpc.errors import MTPCError
from mtpc.lab.convert.gumiho import convert_gumiho
from mtpc.lab.evaluation.reference import ReferenceDrafter
from mtpc.methods.drafter import load_drafter
from mtpc.target_head.shared import SharedHead
from tests.support.tiny_models import SIZE, VOCAB, make_target

HEADS, BLOCKS = 5, 5
# As gumiho/train/llama_3_chat_8B_config.json has it, but for the sizes.
PUBLISHED: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "bias": False,
    "bos_token_id": 128000,
    "eos_token_id": 128001,
    "hidden_act": "silu",
    "hidden_size": SIZE,
    "initializer_range": 0.02,
    "intermediate_size": 24,
    "max_position_embeddings": 128,
    "model_type": "llama",
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 1000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "transformers_version": "4.28.1",
    "use_cache": True,
    "vocab_size": VOCAB,
}


def llama() -> LlamaConfig:
    values = {key: value for key, value in PUBLISHED.items() if key not in ("architectures", "bias", "torch_dtype")}
    return LlamaConfig(**values, attn_implementation="eager")


def checkpoint(folder: Path, bias: bool = True, **changes: Any) -> dict[str, Tensor]:
    """The tensors of a random checkpoint, written as published."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**PUBLISHED, **changes}))
    generator = torch.Generator().manual_seed(2)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator) * shape[-1] ** -0.5

    tensors = {"embed_tokens.weight": random(VOCAB, SIZE), "fc.weight": random(SIZE, 2 * SIZE)}
    if bias:
        tensors["fc.bias"] = random(SIZE)
    for number in range(2):
        layer = LlamaDecoderLayer(llama(), number).state_dict()
        for name, tensor in layer.items():
            if number or name != "input_layernorm.weight":
                noise = random(*tensor.shape)
                tensors[f"layers.{number}.{name}"] = 1 + noise if tensor.ndim == 1 else noise
    for head in range(HEADS):
        for layer in range(BLOCKS + 1):
            tensors[f"mlp.{head}.{layer}.linear.weight"] = random(SIZE, 2 * SIZE if layer == 0 else SIZE)
            tensors[f"mlp.{head}.{layer}.linear.bias"] = random(SIZE)
    torch.save(tensors, folder / "pytorch_model.bin")
    return tensors


class Reference:
    """The published forward pass: the embedding comes first, no norm in front of the first layer, none at the end."""

    def __init__(self, tensors: dict[str, Tensor], embedding: Tensor) -> None:
        self.tensors, self.embedding = tensors, embedding
        self.layers = []
        for number in range(2):
            layer = LlamaDecoderLayer(llama(), number)
            if number == 0:
                layer.input_layernorm = torch.nn.Identity()
            prefix = f"layers.{number}."
            layer.load_state_dict(
                {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
            )
            self.layers.append(layer)

    def fc(self, token: Tensor, state: Tensor) -> Tensor:
        both = torch.cat([self.embedding[token], state], -1)
        return both @ self.tensors["fc.weight"].T + self.tensors.get("fc.bias", torch.zeros(SIZE))

    def state(self, tokens: Tensor, states: Tensor) -> Tensor:
        """Of the last of all positions, [d]."""
        z = self.fc(tokens, states)[None]
        length = len(tokens)
        mask = torch.full((length, length), -torch.inf).triu(1)[None, None]
        rotary = LlamaRotaryEmbedding(llama())(z, torch.arange(length)[None])
        for layer in self.layers:
            z = layer(z, attention_mask=mask, position_embeddings=rotary)
        return z[0, -1]

    def drafts(self, hidden: Tensor, text: Tensor, unembedding: Tensor) -> list[int]:
        """Two of the layers, five of the heads, each the most probable token."""
        tokens, states, drafts = text[1:], hidden, []
        for _ in range(2):
            state = self.state(tokens, states)
            drafts.append(int((unembedding @ state).argmax()))
            tokens, states = torch.cat([tokens, torch.tensor(drafts[-1:])]), torch.cat([states, state[None]])
        both = torch.cat([self.fc(tokens[-2 + i], states[-2 + i]) for i in range(2)])
        for head in range(HEADS):
            x = both
            for layer in range(BLOCKS + 1):
                name = f"mlp.{head}.{layer}.linear"
                out = silu(self.tensors[f"{name}.weight"] @ x + self.tensors[f"{name}.bias"])
                x = out if layer == 0 else x + out
            drafts.append(int((unembedding @ x).argmax()))
        return drafts


@pytest.mark.parametrize("bias", [True, False])
@torch.inference_mode()
def test_the_converted_drafter_drafts_as_the_published_code_does(tmp_path: Path, bias: bool) -> None:
    tensors, target = checkpoint(tmp_path / "source", bias), make_target("llama")
    converted = convert_gumiho(tmp_path / "source", tmp_path / "drafter")
    assert load_drafter(tmp_path / "drafter").config == converted.config
    assert converted.config.num_drafts == 2 + HEADS
    head, reference = SharedHead.of(target), Reference(tensors, target.get_input_embeddings().weight)
    generator, seen = torch.Generator().manual_seed(4), set()
    for length in range(3, 15):
        text = torch.randint(VOCAB, (length,), generator=generator)
        hidden = target.model(input_ids=text[None, :-1]).last_hidden_state[0]
        found = ReferenceDrafter(converted, head).draft(hidden[None], text[None, 1:], 7).tokens[0].tolist()
        assert found == reference.drafts(hidden, text, head.rows)
        seen |= set(found)
    assert len(seen) > 5


def of_tensors(change: Callable[[dict[str, Tensor]], object]) -> Callable[[Path], None]:
    def broken(folder: Path) -> None:
        tensors = torch.load(folder / "pytorch_model.bin", weights_only=True)
        change(tensors)
        torch.save(tensors, folder / "pytorch_model.bin")

    return broken


def of_config(**changes: Any) -> Callable[[Path], None]:
    return lambda folder: (folder / "config.json").write_text(json.dumps({**PUBLISHED, **changes}))  # type: ignore[return-value]


class Hostile:
    """A pickle of it would create a file."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("pwned"),)


FORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "sparse": Tensor.to_sparse,
    "in sparse rows": Tensor.to_sparse_csr,
    "quantized": lambda tensor: torch.quantize_per_tensor(tensor.float(), 0.1, 0, torch.qint8),
    "without values": lambda tensor: tensor.to("meta"),
    "complex": lambda tensor: tensor.to(torch.complex64),
    "of whole numbers": lambda tensor: tensor.long(),
    "of bytes": lambda tensor: tensor.to(torch.float8_e4m3fn),
}
PLACES = ("fc.weight", "layers.1.mlp.up_proj.weight", "mlp.0.0.linear.weight")


def in_form(place: str, form: str) -> Callable[[Path], None]:
    return of_tensors(lambda tensors: tensors.update({place: FORMS[form](tensors[place])}))


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "no weights": (lambda folder: (folder / "pytorch_model.bin").unlink(), "pytorch_model.bin"),
    "no config": (lambda folder: (folder / "config.json").unlink(), "config.json"),
    "text": (
        lambda folder: (folder / "pytorch_model.bin").write_text("weights"),
        "cannot be read as a file of tensors",
    ),
    "a pickle that does something": (
        lambda folder: torch.save({"a": Hostile()}, folder / "pytorch_model.bin"),
        "cannot be read as a file of tensors",
    ),
    "a list": (lambda folder: torch.save([1], folder / "pytorch_model.bin"), "something else than tensors"),
    "a tensor too few": (of_tensors(lambda t: t.pop("layers.1.mlp.up_proj.weight")), "up_proj.weight' is missing"),
    "a norm too many": (
        of_tensors(lambda t: t.update({"layers.0.input_layernorm.weight": torch.ones(SIZE)})),
        "'layers.0.input_layernorm.weight' is unknown",
    ),
    "heads of unequal depth": (of_tensors(lambda t: t.pop("mlp.4.5.linear.weight")), "heads of equal depth"),
    "no heads": (
        of_tensors(lambda t: [t.pop(name) for name in list(t) if name.startswith("mlp.")]),
        "heads of equal depth",
    ),
    "another shape": (of_tensors(lambda t: t.update({"fc.weight": torch.ones(SIZE, SIZE)})), "'fc.weight' has shape"),
    "not finite": (of_tensors(lambda t: t["fc.weight"].fill_(torch.nan)), "not finite"),
    "another model": (of_config(model_type="qwen2"), "model_type"),
    "an unknown key": (of_config(colour="red"), "unknown key 'colour'"),
    "a stretched rope": (of_config(rope_scaling={"type": "linear", "factor": 2.0}), "rope_scaling"),
    "sizes that do not fit": (of_config(num_key_value_heads=3), "multiple of num_key_value_heads"),
    **{f"{place} {form}": (in_form(place, form), "the tensor '") for place in PLACES for form in FORMS},
    "an absurd size": (of_config(intermediate_size=10**30), "intermediate_size"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_another_checkpoint_is_refused_with_one_sentence(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoint(tmp_path / "source")
    change, message = BROKEN[name]
    change(tmp_path / "source")
    with pytest.raises(MTPCError) as caught:
        convert_gumiho(tmp_path / "source", tmp_path / "drafter")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "drafter").exists()
    assert not Path("pwned").exists()


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    checkpoint(tmp_path / "source")
    with pytest.raises(MTPCError, match="already exists"):
        convert_gumiho(tmp_path / "source", tmp_path / "source")
