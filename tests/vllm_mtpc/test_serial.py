"""vLLM's own layer, in this process: what it remembers of tokens after which nothing is drafted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import (
    cleanup_dist_env_and_memory,
    init_distributed_environment,
    initialize_model_parallel,
)
from vllm.engine.arg_utils import EngineArgs
from vllm.forward_context import set_forward_context
from vllm.model_executor.model_loader.utils import process_weights_after_loading
from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

from mtpc.methods.drafter import load_drafter
from vllm_mtpc.serial import SerialPart

TOKENS, BLOCKS, BLOCK = 21, 5, 16


@pytest.fixture
def config(fastmtp: Path, target: Path, tmp_path: Path) -> Iterator[VllmConfig]:
    """Of one rank, which is there."""
    drafts = {"method": "eagle", "model": str(fastmtp), "num_speculative_tokens": 3}
    args = EngineArgs(str(target), dtype="float32", enforce_eager=True, speculative_config=drafts)
    config = args.create_engine_config()
    with set_current_vllm_config(config):
        init_distributed_environment(1, 0, f"file://{tmp_path}/group", 0, "gloo")
        initialize_model_parallel()
        yield config
        cleanup_dist_env_and_memory()


@torch.inference_mode()
def test_keys_and_values_without_the_rest_of_the_layer(config: VllmConfig, fastmtp: Path) -> None:
    """Are those of the whole layer, at the places that are theirs, and at no other."""
    serial = load_drafter(fastmtp).serial
    assert serial is not None
    part = SerialPart(vllm_config=config, serial=serial.config, prefix="model")
    for parameter in part.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    process_weights_after_loading(part, config.model_config, torch.device("cpu"))
    part.embed_tokens = torch.nn.Embedding(256, serial.config.hidden_size)
    attention = part.blocks[0].self_attn.attn
    attention.isa = _get_attn_isa(torch.float32, BLOCK, attention.head_size)
    slots, chosen = torch.randperm(BLOCKS * BLOCK)[:TOKENS], torch.randint(256, (TOKENS,))
    read = chosen, torch.arange(7, 7 + TOKENS), torch.randn(TOKENS, serial.config.hidden_size)

    def written(remembered: bool) -> Tensor:
        attention.kv_cache = torch.zeros(BLOCKS, attention.num_kv_heads, BLOCK, 2 * attention.head_size)
        name = attention.layer_name
        with set_forward_context({name: None}, config, num_tokens=TOKENS, slot_mapping={name: slots}):
            _ = part.remember(*read, slots) if remembered else part(*read)
        cache: Tensor = attention.kv_cache
        return cache

    assert part.remembers
    whole, remembered = written(False), written(True)
    torch.testing.assert_close(remembered, whole)
    assert remembered.count_nonzero() == TOKENS * attention.num_kv_heads * 2 * attention.head_size
