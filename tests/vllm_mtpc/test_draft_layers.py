"""vLLM's own layer, in this process: what it remembers of tokens after which nothing is drafted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import (
    cleanup_dist_env_and_memory,
    init_distributed_environment,
    initialize_model_parallel,
)
from vllm.engine.arg_utils import EngineArgs

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
