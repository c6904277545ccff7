"""LoRA adapters as engines apply them: fused like the engines' projections, and one shard on each rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from mtpc.autoregressive.adapted_layers import AdaptedLayers, LowRank
from mtpc.autoregressive.lora import LoRALayersConfig, module_path

# The projections of each fused one, in the order of its outputs, as both engines fuse them.
FUSED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "o_proj": ("o_proj",),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "down_proj": ("down_proj",),
}
ROW_PARALLEL = ("o_proj", "down_proj")  # sharded by input features; the others by output features


class LayerRanks(NamedTuple):
    """The tensor-parallel ranks that a decoder layer is sharded over.

    Attributes:
        rank: This rank.
        size: Number of ranks.
        reduce: Sums a tensor over all ranks.
    """

    rank: int
    size: int
    reduce: Callable[[Tensor], Tensor]


class FusedAdapter(nn.Module):
    """This rank's share of the low-rank product of a fused projection.

    Attributes:
        down: Rows of every A, one adapter below the other, [R, in features of this rank].
        up: Blocks of every B, already scaled, [out features of this rank, R]. Other blocks are zero.

    Args:
        config: The adapted layers.
        fused: A key of `FUSED`, with an adapted projection.
        ranks: Of the layer.
    """

    def __init__(self, config: LoRALayersConfig, fused: str, ranks: LayerRanks) -> None:
        super().__init__()
        self.config, self.fused, self.ranks = config, fused, ranks
        self.names = [name for name in FUSED[fused] if name in config.modules]
        shapes = {name: config.shape(name) for name in FUSED[fused]}
        shares = {name: self._share(name) for name in FUSED[fused]}
        inputs = len(range(*shares[self.names[0]][1].indices(shapes[self.names[0]][1])))
        outputs = sum(len(range(*shares[name][0].indices(shapes[name][0]))) for name in FUSED[fused])
        size = config.rank * len(self.names)
        self.down = nn.Parameter(torch.zeros(size, inputs), requires_grad=False)
        self.up = nn.Parameter(torch.zeros(outputs, size), requires_grad=False)

    def _share(self, name: str) -> tuple[slice, slice]:
        """Return this rank's output features and input features of a projection."""
        (outputs, inputs), (rank, count, _) = self.config.shape(name), self.ranks
        if name in ROW_PARALLEL:
            return slice(0, outputs), _part(inputs, rank, count)
        if name in ("k_proj", "v_proj") and count > self.config.num_key_value_heads:  # several ranks share a head
            copies = count // self.config.num_key_value_heads
            return _part(outputs, rank // copies, self.config.num_key_value_heads), slice(0, inputs)
        return _part(outputs, rank, count), slice(0, inputs)

    @torch.no_grad()
    def load(self, adapters: nn.ModuleDict) -> None:
        """Copy this rank's share of a layer's adapters.

        Args:
            adapters: Adapters of a layer, see `AdaptedLayers.layers`.
        """
        rank, row = self.config.rank, 0
        for name in FUSED[self.fused]:
            outputs, inputs = self._share(name)
            count = len(range(*outputs.indices(self.config.shape(name)[0])))
            if name in self.names:
                adapter = cast("LowRank", adapters.get_submodule(module_path(name)))
                first = rank * self.names.index(name)
                self.down[first : first + rank].copy_(adapter.lora_A.weight[:, inputs])
                block = self.config.scale * adapter.lora_B.weight[outputs]
                self.up[row : row + count, first : first + rank].copy_(block)
            row += count

    def forward(self, x: Tensor) -> Tensor:
        """Return the low-rank product: [T, in features of this rank] -> [T, out features of this rank]."""
        low = x.to(self.down.dtype) @ self.down.T
        if self.fused in ROW_PARALLEL and self.ranks.size > 1:
            low = self.ranks.reduce(low)
        return low @ self.up.T


class AdaptedProjection(nn.Module):
    """A fused projection of an engine's target, whose forward returns outputs and bias, with its adapter.

    Args:
        base: The target's projection, of any quantization.
        adapter: The adapter of this rank; None: the projection is not adapted.
        reduce: Sums the base's output over the ranks, where the target's layer does so later; None: it is summed.
    """

    def __init__(
        self, base: nn.Module, adapter: FusedAdapter | None, reduce: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        super().__init__()
        self.base, self.adapter, self.reduce = base, adapter, reduce

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the adapted projection of x [T, in features of this rank], and the base's bias."""
        out, bias = self.base(x)
        if self.reduce is not None:
            out = self.reduce(out)
        return out if self.adapter is None else out + self.adapter(x).to(out.dtype), bias


def fused_adapters(config: LoRALayersConfig, ranks: LayerRanks) -> nn.ModuleDict:
    """Return the untrained adapters of a layer by the names of the fused projections.

    Args:
        config: The adapted layers.
        ranks: Of the layer.
    """
    adapted = {fused for fused, names in FUSED.items() if set(names) & set(config.modules)}
    return nn.ModuleDict({fused: FusedAdapter(config, fused, ranks) for fused in FUSED if fused in adapted})


def load_fused(blocks: Iterator[nn.ModuleDict], part: AdaptedLayers) -> None:
    """Copy this rank's share of all adapters.

    Args:
        blocks: The `fused_adapters` of each layer.
        part: The adapted layers of the checkpoint.
    """
    for block, adapters in zip(blocks, part.layers, strict=True):
        for fused in block.values():
            cast("FusedAdapter", fused).load(cast("nn.ModuleDict", adapters))


def _part(size: int, rank: int, count: int) -> slice:
    """Return one of ``count`` equal parts of ``size`` features."""
    return slice(rank * (size // count), (rank + 1) * (size // count))
