"""Adapters that are fused and sharded as in engines, against the separate adapters of each projection."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mtpc.autoregressive.adapted_layers import AdaptedLayers, LowRank
from mtpc.autoregressive.fused_adapters import (
    FUSED,
    ROW_PARALLEL,
    AdaptedProjection,
    FusedAdapter,
    LayerRanks,
    fused_adapters,
    load_fused,
)
from mtpc.autoregressive.lora import ADAPTED_MODULES, LoRALayersConfig, module_path

SHAPE = {
    "layer": "llama",
    "hidden_size": 16,
    "vocab_size": 20,
    "intermediate_size": 24,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "attention_bias": False,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "max_position_embeddings": 64,
    "num_hidden_layers": 2,
    "target_layers": 3,
    "rank": 3,
    "alpha": 6.0,
}


@pytest.mark.parametrize("modules", [ADAPTED_MODULES, ("v_proj", "gate_proj", "down_proj")], ids=["all", "some"])
@pytest.mark.parametrize("count", [1, 2, 4])
@torch.no_grad()
def test_shards_are_those_of_the_projections(modules: tuple[str, ...], count: int) -> None:
    """With four ranks, two of them share each key-value head."""
    torch.manual_seed(1)
    config = LoRALayersConfig.model_validate(SHAPE | {"modules": list(modules)})
    part = AdaptedLayers(config)
    for parameter in part.parameters():
        parameter.normal_()
    on_ranks = [
        [fused_adapters(config, LayerRanks(rank, count, lambda low: low)) for _ in config.layer_numbers]
        for rank in range(count)
    ]
    for blocks in on_ranks:
        load_fused(iter(blocks), part)
    for number, adapters in enumerate(part.layers):
        assert set(on_ranks[0][number]) == {name for name in FUSED if set(FUSED[name]) & set(modules)}
        for fused in on_ranks[0][number]:
            shards = [blocks[number].get_submodule(fused) for blocks in on_ranks]
            x = torch.randn(5, config.shape(FUSED[fused][0])[1])
            found = outputs_of([shard for shard in shards if isinstance(shard, FusedAdapter)], x)
            for rank, of_rank in enumerate(found):
                expected = [expected_share(config, adapters, name, x, rank, count) for name in FUSED[fused]]
                torch.testing.assert_close(of_rank, torch.cat(expected, 1))


def outputs_of(shards: list[FusedAdapter], x: Tensor) -> list[Tensor]:
    """Of each rank, [T, out features of the rank], with the sum over ranks computed here."""
    if shards[0].fused not in ROW_PARALLEL:
        return [shard(x) for shard in shards]
    inputs = x.chunk(len(shards), 1)
    low = torch.stack([part @ shard.down.T for part, shard in zip(inputs, shards, strict=True)]).sum(0)
    for shard in shards:
        shard.ranks = shard.ranks._replace(reduce=lambda _: low)
    return [shard(part) for part, shard in zip(inputs, shards, strict=True)]


def expected_share(
    config: LoRALayersConfig, adapters: nn.Module, name: str, x: Tensor, rank: int, count: int
) -> Tensor:
    """The rank's outputs of a projection; zero where it is not adapted."""
    whole = torch.zeros(len(x), config.shape(name)[0])
    if name in config.modules:
        adapter = adapters.get_submodule(module_path(name))
        assert isinstance(adapter, LowRank)
        whole = config.alpha / config.rank * adapter(x)
    if name in ROW_PARALLEL:
        return whole
    if name in ("k_proj", "v_proj"):
        heads = whole.split(config.head_dim, 1)
        per_rank = max(1, len(heads) // count)
        first = rank * len(heads) // count
        return torch.cat(heads[first : first + per_rank], 1)
    return whole.chunk(count, 1)[rank]


class Base(nn.Module):
    """A projection of an engine."""

    def forward(self, x: Tensor) -> tuple[Tensor, str]:
        """Outputs of this rank, and a bias."""
        return 2 * x, "bias"


def test_a_projection_is_summed_over_ranks_before_its_adapter_is_added() -> None:
    x, config = torch.randn(2, 16), LoRALayersConfig.model_validate(SHAPE | {"modules": ["o_proj"], "head_dim": 2})
    adapter = FusedAdapter(config, "o_proj", LayerRanks(0, 1, lambda low: low))
    adapter.up.fill_(1.0)
    adapter.down.fill_(1.0)
    out, bias = AdaptedProjection(Base(), adapter, lambda low: low + 1)(x)
    torch.testing.assert_close(out, 2 * x + 1 + 3 * x.sum(1, keepdim=True))
    assert bias == "bias"
    assert torch.equal(AdaptedProjection(Base(), None)(x)[0], 2 * x)
