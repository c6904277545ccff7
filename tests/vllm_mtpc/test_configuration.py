"""What `mtpc plan` writes for vLLM is what vLLM reads, and passes every check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from vllm.engine.arg_utils import EngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser

from mtpc.draft_length.cost import StepCost
from mtpc.lab.bench.configuration import MeasuredServer, configuration, write
from vllm_mtpc.additional_config import draft_settings

COST = StepCost(plain=((1, 1.0), (4, 1.2)), verifying=((4, 1.25), (16, 2.1)), drafting=((1, 0.2),))
COPYING = {"mtpc": {"copy": True, "step_cost": COST.model_dump()}}


def engine_config(target: Path, drafter: Path, ranges: list[list[int]], copying: Any, file: Path) -> Any:
    """What every way of starting vLLM builds first, from a file."""
    served = MeasuredServer("vllm", str(target), str(drafter))
    write(file, served.engine, configuration(served, ranges, copying))
    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    return EngineArgs.from_cli_args(parser.parse_args(["--config", str(file)])).create_engine_config()


@pytest.mark.parametrize("kind", ["drafter", "fastmtp"])
def test_drafts_by_batch_size(kind: str, target: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    ranges = [[1, 4, 3], [5, 20, 0]]
    found = engine_config(target, request.getfixturevalue(kind), ranges, None, tmp_path / "own.yaml")
    assert found.speculative_config.num_speculative_tokens == 3
    assert [list(entry) for entry in found.speculative_config.num_speculative_tokens_per_batch_size] == ranges
    assert found.scheduler_config.max_num_seqs == 20
    assert found.model_config.model == str(target)


@pytest.mark.parametrize("kind", ["drafter", "fastmtp"])
def test_copying(kind: str, target: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    found = engine_config(target, request.getfixturevalue(kind), [[1, 16, 2]], COPYING, tmp_path / "own.yaml")
    assert found.speculative_config.num_speculative_tokens == 10
    settings = draft_settings(found.additional_config)
    assert settings.copy_
    assert settings.step_cost == COST


def test_without_a_drafter(target: Path, drafter: Path, tmp_path: Path) -> None:
    assert engine_config(target, drafter, [[1, 16, 0]], None, tmp_path / "own.yaml").speculative_config is None
