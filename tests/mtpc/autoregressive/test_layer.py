"""The draft layer against the same layer written out; FastMTP's names against those of published checkpoints."""

from __future__ import annotations

import pytest
import torch
from transformers import DynamicCache

from mtpc.autoregressive.layer import DraftLayers
from mtpc.target_head.shared import SharedHead
from tests.oracles.draft_layers import Row
from tests.support.tiny_models import KINDS, SIZE, VOCAB, draft_layers_oracle, make_fastmtp, make_layer, make_target

LENGTH = 7
# Of TencentBAC/FastMTP and XiaomiMiMo/MiMo-7B-RL.
NAMES = [
    *(f"{name}_layernorm.weight" for name in ("token", "hidden", "input", "post_attention", "final")),
    "input_proj.weight",
    *(f"self_attn.{name}_proj.weight" for name in "qkvo"),
    *(f"mlp.{name}_proj.weight" for name in ("gate", "up", "down")),
]
BIASES = [f"self_attn.{name}_proj.bias" for name in "qkv"]
NORMS = [f"self_attn.{name}_norm.weight" for name in "qk"]


@pytest.fixture(params=KINDS)
def made(request: pytest.FixtureRequest) -> tuple[DraftLayers, SharedHead]:
    target = make_target(request.param)
    return make_layer(target), SharedHead.of(target)


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(2)
    return torch.randn(2, LENGTH, SIZE), torch.randint(VOCAB, (2, LENGTH))


def test_the_states_are_those_of_the_written_out_layer(made: tuple[DraftLayers, SharedHead]) -> None:
    layer, head = made
    oracle = draft_layers_oracle(layer, head)
    previous, tokens = inputs()
    positions = torch.arange(5, 5 + LENGTH)
    states = layer(head.embed(tokens), previous, positions[None])
    for text in range(2):
        rows = [Row(int(tokens[text, i]), previous[text, i], 5 + i) for i in range(LENGTH)]
        for last in range(LENGTH):
            expected = oracle.last_state(rows[: last + 1])
            torch.testing.assert_close(states[text, last].double(), expected, atol=1e-5, rtol=1e-4)


def test_a_cache_changes_nothing(made: tuple[DraftLayers, SharedHead]) -> None:
    layer, head = made
    previous, tokens = inputs()
    whole = layer(head.embed(tokens), previous, torch.arange(LENGTH)[None])
    cache, parts = DynamicCache(), []
    for i in range(LENGTH):
        one = slice(i, i + 1)
        parts.append(layer(head.embed(tokens[:, one]), previous[:, one], torch.tensor([[i]]), cache=cache))
    torch.testing.assert_close(torch.cat(parts, 1), whole, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("kind", "names"), [("llama", NAMES), ("qwen2", NAMES + BIASES), ("qwen3", NAMES + NORMS)])
def test_the_names_are_those_of_published_checkpoints(kind: str, names: list[str]) -> None:
    drafter = make_fastmtp(make_target(kind))
    tensors = drafter.tensors()
    assert set(tensors) == {f"model.mtp_layers.0.{name}" for name in names}
    assert tensors["model.mtp_layers.0.input_proj.weight"].shape == (SIZE, 2 * SIZE)
    other = make_fastmtp(make_target(kind), seed=9)
    other.load_tensors(tensors)
    assert all(torch.equal(a, b) for a, b in zip(drafter.parameters(), other.parameters(), strict=True))


def test_half_precision_does_not_round_the_positions() -> None:
    layer = make_layer(make_target("llama"))
    positions = torch.tensor([[100_003]])
    exact = layer.rotary(torch.zeros(1), positions)
    rounded = layer.to(torch.bfloat16).rotary(torch.zeros(1), positions)
    assert all(torch.equal(a, b) for a, b in zip(exact, rounded, strict=True))
