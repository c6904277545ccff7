"""CUDA graphs of functions of the batch size: replays and calls, and graphs that vLLM discards after profiling."""

from __future__ import annotations

import weakref
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.config.compilation import CUDAGraphMode
from vllm.v1.worker.gpu import cudagraph_utils

from tests.vllm_mtpc.native.test_speculator import VOCABULARIES, extended, one_rank
from vllm_mtpc.v2.graphs import BatchGraphs
from vllm_mtpc.v2.languages import DeviceLanguages
from vllm_mtpc.v2.speculator import Speculator

__all__ = ["one_rank"]
SIZES = [1, 2, 4]


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
    speculator = SimpleNamespace()
    graphs = BatchGraphs(speculator, "calls", lambda rows: did.append(f"call of {rows}"))
    if mode is not None:  # None: there is no manager yet
        speculator.calls_cudagraph_manager = SimpleNamespace(
            dispatch=lambda rows, tokens, **_: SimpleNamespace(cg_mode=mode, size=4),
            run_fullgraph=lambda batch: did.append(f"replay of {batch.size}"),
        )
    graphs.run(3, eager)
    assert did == [expected]


class Graph:
    """In the place of a captured one."""


@pytest.fixture
def captured(one_rank: None, monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[Graph]]:
    """All graphs that managers of vLLM's capture; nothing else of its profiling needs a device or a model here."""
    made: list[weakref.ref[Graph]] = []

    def capture(self: Any, create_forward_fn: Any, progress_bar_desc: str) -> None:
        self.graphs = {batch: Graph() for batches in self._capture_descs.values() for batch in batches}
        made.extend(map(weakref.ref, self.graphs.values()))

    ranks = SimpleNamespace(is_first_rank=True, is_last_rank=True)
    monkeypatch.setattr(cudagraph_utils.CudaGraphManager, "capture", capture)
    monkeypatch.setattr(cudagraph_utils, "get_pp_group", lambda: ranks)
    for name in ("get_global_graph_pool", "graph_pool_handle"):
        monkeypatch.setattr(type(cudagraph_utils.current_platform), name, lambda self: None, raising=False)
    monkeypatch.setattr(cudagraph_utils.torch.accelerator, "empty_cache", lambda: None)
    for name in ("_init_minimal_kv_cache_for_profiling", "_teardown_profiling_state"):
        monkeypatch.setattr(cudagraph_utils, name, lambda runner: None)
    return made


def ours(vllm_config: Any) -> Any:
    """A speculator with all three kinds of graphs, and none of vLLM's."""
    made: Any = Speculator.__new__(Speculator)
    made.vllm_config, made.device, made.autoregressive, made.parallel_drafts = (
        vllm_config,
        torch.device("cpu"),
        False,
        2,
    )
    made.max_num_reqs, made.num_speculative_steps, made.idx_mapping = 4, 2, torch.zeros(4, dtype=torch.int64)
    made.req_states = SimpleNamespace(add_request=lambda *_: None)
    made.languages, made.copying = DeviceLanguages(VOCABULARIES, made, made.req_states, counts_metrics=False), object()
    made.copy_graphs = BatchGraphs(made, "prompt_lookup", made._look_up)
    made.parallel_graphs = BatchGraphs(made, "parallel_part", made._draft_parallel)
    return made


def of_vllm(vllm_config: Any) -> Any:
    """A drafter of vLLM's own, restricted to the vocabularies of languages."""
    made = extended(setattr, VOCABULARIES, copies=True)
    made.vllm_config = vllm_config
    return made


@pytest.mark.parametrize(("speculator_of", "kinds"), [(ours, 3), (of_vllm, 2)])
def test_vllm_discards_what_it_captured_while_it_profiled(
    speculator_of: Any, kinds: int, captured: list[weakref.ref[Graph]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its own function; what is captured for good comes after that."""
    monkeypatch.setattr("vllm.distributed.get_tensor_model_parallel_rank", lambda: 0)
    compilation = SimpleNamespace(cudagraph_capture_sizes=SIZES, max_cudagraph_capture_size=4)
    compilation.cudagraph_mode = CUDAGraphMode.FULL
    config: Any = SimpleNamespace(compilation_config=compilation, scheduler_config=SimpleNamespace(max_num_seqs=4))
    config.speculative_config = SimpleNamespace(enforce_eager=False, uses_dynamic_speculative_decoding=lambda: False)
    config.parallel_config = SimpleNamespace(tensor_parallel_size=1, data_parallel_size=1)
    config.cache_config = SimpleNamespace(use_kda_recoverssm=False)
    speculator = speculator_of(config)
    speculator.init_cudagraph_manager(CUDAGraphMode.FULL)

    def capture_model(profile_only: bool) -> int:
        speculator.capture()
        return 0

    manager = cudagraph_utils.CudaGraphManager(config, torch.device("cpu"), CUDAGraphMode.FULL_DECODE_ONLY, 1)
    runner = SimpleNamespace(speculator=speculator, cudagraph_manager=manager, capture_model=capture_model)
    runner.vllm_config, runner.compilation_config, runner.needs_cudagraph_capture = config, compilation, lambda: True
    monkeypatch.setattr(cudagraph_utils, "set_current_vllm_config", lambda config: nullcontext())
    cudagraph_utils.profile_cudagraph_memory(runner)
    assert [graph() for graph in captured] == [None] * kinds * len(SIZES)
    speculator.init_cudagraph_manager(CUDAGraphMode.FULL)
    speculator.capture()
    assert sum(graph() is not None for graph in captured) == kinds * len(SIZES)
