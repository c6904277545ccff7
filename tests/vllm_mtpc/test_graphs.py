"""What runs in a graph of its own runs without one too: for the profiling run, before vLLM knows its graphs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from vllm.config.compilation import CUDAGraphMode

from vllm_mtpc.graphs import BatchGraphs


@pytest.mark.parametrize(
    ("mode", "eager", "expected"),
    [
        (CUDAGraphMode.FULL, False, "replay of 4"),
        (CUDAGraphMode.FULL, True, "call of 3"),
        (CUDAGraphMode.NONE, False, "call of 3"),
        (None, True, "call of 3"),
    ],
)
def test_a_replay_or_a_call(mode: CUDAGraphMode | None, eager: bool, expected: str) -> None:
    did: list[str] = []
    graphs: Any = BatchGraphs(lambda rows: did.append(f"call of {rows}"))
    if mode is not None:  # None: there is no manager yet
        graphs.manager = SimpleNamespace(
            dispatch=lambda rows, tokens, **_: SimpleNamespace(cg_mode=mode, size=4),
            run_fullgraph=lambda batch: did.append(f"replay of {batch.size}"),
        )
    graphs.run(3, eager)
    assert did == [expected]
