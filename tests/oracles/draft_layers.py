"""Reference implementation of draft layers and their drafting loop, in plain tensors, without cache and transformers.

Each draft token is computed anew from all positions before it.  The core is compared with it, and the engines with the
core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from mtpc.autoregressive.config import AutoregressiveConfig, LayersConfig

PREFIX = "model.mtp_layers.0."  # of a published checkpoint
OUTER = ("token_layernorm.", "hidden_layernorm.", "input_proj.", "final_layernorm.", "blocks.")


class Row(NamedTuple):
    """What the layer reads at one position: the token after it, the state of it, its number."""

    token: int
    previous: Tensor  # [d]
    position: int


class DraftLayersOracle:
    """Draft layers in float64.

    weights: by the names of a checkpoint, with or without its prefix, or by those of a `DraftLayers`.  embedding,
    unembedding: [V, d], the target's; what the weights bring themselves stands in their place.
    """

    def __init__(self, config: LayersConfig, weights: dict[str, Tensor], embedding: Tensor, unembedding: Tensor):
        self.config = config
        named = {name.removeprefix(PREFIX): tensor.double() for name, tensor in weights.items()}
        self.weights = {
            name if name.startswith(OUTER) else f"blocks.0.{name}": tensor for name, tensor in named.items()
        }
        self.embedding = weights.get("own.embedding.weight", embedding).double()
        self.unembedding, self.tokens = unembedding.double(), list(range(len(unembedding)))
        if "own.rows" in weights:
            self.unembedding, self.tokens = weights["own.rows"].double(), weights["own.tokens"].tolist()

    def norm(self, name: str, x: Tensor) -> Tensor:
        if f"{name}.weight" not in self.weights:
            assert isinstance(self.config, AutoregressiveConfig) and not self.config.normed
            return x
        scale = (x.pow(2).mean(-1, keepdim=True) + self.config.rms_norm_eps).rsqrt()
        return x * scale * self.weights[f"{name}.weight"]

    def project(self, name: str, x: Tensor) -> Tensor:
        bias = self.weights.get(f"{name}.bias", torch.zeros(()))
        return x @ self.weights[f"{name}.weight"].T + bias

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Rotary embedding of [T, heads, head_dim]: the halves of a head turn together."""
        half = self.config.head_dim // 2
        theta = float(self.config.rope_parameters["rope_theta"])
        angles = positions.double()[:, None] * theta ** (-torch.arange(half, dtype=torch.float64) / half)  # [T, half]
        cosine, sine = angles.cos()[:, None], angles.sin()[:, None]
        first, second = x[..., :half], x[..., half:]
        return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)

    def last_state(self, rows: list[Row]) -> Tensor:
        """The state of the last row [d], which attends to all rows."""
        z = torch.stack([self.read(row) for row in rows])  # [T, d]
        positions = torch.tensor([row.position for row in rows])
        for number in range(self.config.num_hidden_layers):
            z = torch.stack([self.layer(f"blocks.{number}", z[: t + 1], positions[: t + 1]) for t in range(len(rows))])
        return self.norm("final_layernorm", z[-1])

    def read(self, row: Row) -> Tensor:
        """What the layers read of a row, [d]: the projection of its state and its token."""
        embedding = self.norm("token_layernorm", self.embedding[row.token])
        return self.project("input_proj", torch.cat([self.norm("hidden_layernorm", row.previous.double()), embedding]))

    def heads(self, name: str, x: Tensor, count: int) -> Tensor:
        """Of rows x [T, d], [T, count, head_dim], normed where the layer has a norm for them."""
        found = self.project(f"{name}_proj", x).view(-1, count, self.config.head_dim)
        return self.norm(f"{name}_norm", found) if self.config.layer == "qwen3" else found

    def layer(self, name: str, z: Tensor, positions: Tensor) -> Tensor:
        """One decoder layer's output of the last of the rows z [T, d], which attends to all of them: [d]."""
        heads, groups, size = self.config.num_attention_heads, self.config.num_key_value_heads, self.config.head_dim
        x = self.norm(f"{name}.input_layernorm", z)
        query = self.rotate(self.heads(f"{name}.self_attn.q", x, heads), positions)[-1]
        keys = self.rotate(self.heads(f"{name}.self_attn.k", x, groups), positions)
        values = self.project(f"{name}.self_attn.v_proj", x).view(-1, groups, size)
        attended = []
        for head in range(heads):
            group = head // (heads // groups)
            weights = (keys[:, group] @ query[head] / size**0.5).softmax(0)
            attended.append(weights @ values[:, group])
        out = z[-1] + self.project(f"{name}.self_attn.o_proj", torch.cat(attended))
        x = self.norm(f"{name}.post_attention_layernorm", out)
        gate = torch.nn.functional.silu(self.project(f"{name}.mlp.gate_proj", x))
        return out + self.project(f"{name}.mlp.down_proj", gate * self.project(f"{name}.mlp.up_proj", x))

    def logits(self, state: Tensor) -> Tensor:
        found = torch.full((len(self.embedding),), -torch.inf, dtype=torch.float64)
        found[self.tokens] = self.unembedding @ state
        return found

    def draft(
        self, hidden: Tensor, text: list[int], num_drafts: int, choose: Callable[[int, Tensor], int]
    ) -> tuple[list[int], Tensor]:
        """K drafts after a text and the logits [K, V] that each was chosen from; arguments as `steps`."""
        drafts, states = self.steps(hidden, text, num_drafts, choose)
        return drafts, torch.stack([self.logits(state) for state in states])

    def steps(
        self, hidden: Tensor, text: list[int], num_drafts: int, choose: Callable[[int, Tensor], int]
    ) -> tuple[list[int], Tensor]:
        """K drafts after a text and the states [K, d] that predicted them.

        hidden: [T - 1, d], the target's states of all tokens of the text but the last, which it has just emitted.
        choose: (step, logits) -> token.
        """
        rows = [Row(text[i + 1], hidden[i], i) for i in range(len(text) - 1)]
        drafts: list[int] = []
        states = []
        for step in range(num_drafts):
            states.append(self.last_state(rows))
            drafts.append(choose(step, self.logits(states[-1])))
            rows.append(Row(drafts[-1], states[-1], len(rows)))
        return drafts, torch.stack(states)


def greedy(_: int, logits: Tensor) -> int:
    """The most likely token."""
    return int(logits.argmax())
