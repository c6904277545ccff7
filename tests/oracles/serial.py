"""A serial layer and its drafting loop, written out in plain tensors from its weights: no cache, no transformers.

Every draft is computed from all positions before it, anew.  The core, and through it the engines, is held against
this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from mtpc.serial.config import SerialConfig

PREFIX = "model.mtp_layers.0."  # of a published checkpoint


class Row(NamedTuple):
    """What the layer reads at one position: the token after it, the state of it, its number."""

    token: int
    previous: Tensor  # [d]
    position: int


class SerialOracle:
    """A serial layer, float64.

    weights: by the names of a checkpoint, with or without its prefix.  embedding, unembedding: [V, d].
    """

    def __init__(self, config: SerialConfig, weights: dict[str, Tensor], embedding: Tensor, unembedding: Tensor):
        self.config = config
        self.weights = {name.removeprefix(PREFIX): tensor.double() for name, tensor in weights.items()}
        self.embedding, self.unembedding = embedding.double(), unembedding.double()

    def norm(self, name: str, x: Tensor) -> Tensor:
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
        heads, groups, size = self.config.num_attention_heads, self.config.num_key_value_heads, self.config.head_dim
        embeddings = self.embedding[[row.token for row in rows]]
        previous = torch.stack([row.previous.double() for row in rows])
        positions = torch.tensor([row.position for row in rows])
        both = torch.cat([self.norm("hidden_layernorm", previous), self.norm("token_layernorm", embeddings)], -1)
        z = both @ self.weights["input_proj.weight"].T  # [T, d]
        x = self.norm("input_layernorm", z)
        query = self.rotate(self.project("self_attn.q_proj", x).view(-1, heads, size), positions)[-1]
        keys = self.rotate(self.project("self_attn.k_proj", x).view(-1, groups, size), positions)
        values = self.project("self_attn.v_proj", x).view(-1, groups, size)
        attended = []
        for head in range(heads):
            group = head // (heads // groups)
            weights = (keys[:, group] @ query[head] / size**0.5).softmax(0)
            attended.append(weights @ values[:, group])
        z = z[-1] + self.project("self_attn.o_proj", torch.cat(attended))
        x = self.norm("post_attention_layernorm", z)
        gate = torch.nn.functional.silu(self.project("mlp.gate_proj", x))
        z = z + self.project("mlp.down_proj", gate * self.project("mlp.up_proj", x))
        return self.norm("final_layernorm", z)

    def logits(self, state: Tensor) -> Tensor:
        return self.unembedding @ state

    def draft(
        self, hidden: Tensor, text: list[int], num_drafts: int, choose: Callable[[int, Tensor], int]
    ) -> tuple[list[int], Tensor]:
        """K drafts after a text and the logits [K, V] that each was chosen from; arguments as `steps`."""
        drafts, states = self.steps(hidden, text, num_drafts, choose)
        return drafts, states @ self.unembedding.T

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
