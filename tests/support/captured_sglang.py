"""SGLang's own draft workers and runners of CUDA graphs on a CPU; every captured call is also replayed.

``python -m tests.support.captured_sglang`` reads command lines of servers from its standard input.  For each it prints
what was captured (`Captured`).  SGLang's workers, models, memory pools and graph runners are real, and so are the sizes
of their buffers.  The attention is a CPU's, and `tests.support.fake_graphs` records the graphs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from tests.support.fake_graphs import FakeGraph

SIZES, TOKENS, SEED = [1, 3], 200, 7  # batch sizes; bound of random token ids; seed


class Captured(NamedTuple):
    """Of a server.

    steps: of SGLang's draft loop.  spec_steps: of SGLang's settings.  loop, extend: batch sizes for which the draft
    loop and the pass over what was verified were captured.
    shorter: the same of SGLang's states for drafts of 0 and 2 tokens, where it adapts the length.  Each has the tokens,
    the steps of the loop, both lists of batch sizes, and whether the loop keeps its attention.
    error: what ended it, None: nothing.
    """

    steps: int
    spec_steps: int
    loop: list[int]
    extend: list[int]
    shorter: list[Any]
    error: str | None = None


def captured(commands: Sequence[Sequence[str]], path: str) -> list[Captured]:
    """Of each of these servers, in one process.  path: where draft methods are found that are not installed."""
    variables = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    variables["PYTHONPATH"] = os.pathsep.join([path, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=json.dumps(commands),
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [Captured(*each) for each in json.loads(done.stdout.splitlines()[-1])]


class Graphs:
    """In the place of SGLang's backend for CUDA graphs: what a replay makes of other inputs is what the call makes."""

    def __init__(self, runner: Any, **options: Any) -> None:
        self.runner, self.sizes = runner, []

    def capture_session(self, stream: Any) -> Any:
        return nullcontext()

    def capture_one(self, key: Any, call: Callable[[], Any], **options: Any) -> None:
        call()
        graph = FakeGraph()
        made = graph.capture(lambda: _tensors(call()))
        for name, buffer in vars(self.runner.buffers).items():
            if name in ("input_ids", "topk_index"):
                buffer.random_(TOKENS)
            elif name == "hidden_states":
                buffer.normal_()
        if (lookup := getattr(self.runner.eagle_worker, "lookup", None)) is not None:
            (tokens, chances), _, weight = lookup.buffers
            tokens.random_(TOKENS), chances.uniform_(), weight.uniform_()
        torch.manual_seed(SEED)
        expected = [each.clone() for each in _tensors(call())]
        torch.manual_seed(SEED)
        graph.replay()
        for one, other in zip(expected, made, strict=True):
            assert torch.allclose(one.double(), other.double(), atol=1e-5), f"a replay of {key} differs"
        self.sizes.append(key.size)


class Attention:
    """A backend for a CPU whose layouts lie, for each batch size, where the graph reads them."""

    def __init__(self, backend: Any) -> None:
        self.backend, self.laid = backend, {}
        self.attn_backends = getattr(backend, "attn_backends", [backend])
        for each in self.attn_backends:
            each.get_cuda_graph_seq_len_fill_value = lambda: 1
        self.get_cuda_graph_seq_len_fill_value = lambda: 1
        self.init_cuda_graph_state = self.init_forward_metadata_in_graph = lambda *_: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)

    def init_forward_metadata_out_graph(self, batch: Any, in_capture: bool = False) -> None:
        self.backend.init_forward_metadata(batch)
        self.laid[batch.batch_size] = [each.forward_metadata for each in self.attn_backends]  # held, as buffers are


def _tensors(tree: Any) -> list[Tensor]:
    leaves = tree_leaves(vars(tree) if hasattr(tree, "next_token_logits") else tree)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]


def _patch() -> None:
    """Let SGLang take this CPU for a device of a vendor's plugin, which captures with SGLang's own classes."""
    from sglang.srt.model_executor.runner import decode_cuda_graph_runner
    from sglang.srt.model_executor.runner_backend import utils
    from sglang.srt.speculative import eagle_worker_v2

    import sglang_cpu.attention
    import sglang_cpu.linear
    from sglang_mtpc import drafter_head, eagle_worker

    runners = {
        "draft_decode": eagle_worker_v2.EAGLEDraftCudaGraphRunner,
        "draft_extend": eagle_worker_v2.EAGLEDraftExtendCudaGraphRunner,
    }
    vendor = SimpleNamespace(
        is_out_of_tree=lambda: True,
        capabilities=SimpleNamespace(graph_capture=True),
        get_speculative_graph_runner_cls=lambda algorithm, phase: runners[phase],
        get_full_graph_backend_cls=lambda: Graphs,
        get_graph_runner_cls=lambda: lambda *_, **__: None,  # of the target: nothing is captured
    )
    eagle_worker.torch = SimpleNamespace(device=lambda name: torch.device("cuda"))  # type: ignore[attr-defined]
    eagle_worker_v2._is_cpu, eagle_worker_v2.current_platform, utils.current_platform = False, vendor, vendor
    decode_cuda_graph_runner.graph_capture = lambda **_: nullcontext(SimpleNamespace(stream=None))
    decode_cuda_graph_runner.get_or_create_global_graph_capture_stream = lambda: None
    sglang_cpu.attention.BLOCK = 1 << 20  # layouts of one size, that of the pool
    sglang_cpu.linear.fits = lambda weight: False  # packed weights have no storage that a graph could read
    drafter_head.DraftLogits = drafter_head.UnionLogits  # as on a GPU


def _capture(arguments: list[str], first: bool) -> Captured:
    """Make a server's workers as SGLang's scheduler does, and capture what its draft worker captures."""
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.distributed import bootstrap
    from sglang.srt.managers.tp_worker import TpModelWorker
    from sglang.srt.model_executor.cuda_graph_config import CudaGraphConfig, PhaseConfig
    from sglang.srt.runtime_context import SpawnRanks, get_exec, get_spec, publish
    from sglang.srt.server_args import prepare_server_args
    from sglang.srt.speculative.eagle_worker_v2 import EagleDraftWorker
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    from mtpc.lab.servers.server import free_port

    server_args = prepare_server_args(arguments)
    server_args.resolve_once()
    publish(server_args, role="scheduler", ranks=SpawnRanks(world_rank=0, dp_rank=None, gpu_id=0))
    if first:
        bootstrap.init_parallel_runtime(server_args=server_args, device="cpu", dist_port=free_port())
        bootstrap.init_layer_runtime(model_config=ModelConfig.from_server_args(server_args))
    spec, options = get_spec(), {"server_args": server_args, "gpu_id": 0, "nccl_port": 0}
    target = TpModelWorker(**options)
    algorithm = SpeculativeAlgorithm.from_string(spec.speculative_algorithm)
    worker = algorithm.create_worker(server_args)(**options, target_worker=target)
    target.alloc_memory_pool(draft_parallel_layout=worker.draft_parallel_layout)
    worker.alloc_memory_pool(target.model_runner.memory_pool_config, *target.get_memory_pool())
    target.init_attention_backends()
    worker.init_attention_backends()
    target.init_cuda_graphs()
    drafting, runner = worker._draft_worker, worker._draft_worker.draft_runner
    steps = drafting.speculative_num_steps
    if drafting.draft_attn_backend is not None:
        drafting.draft_attn_backend = runner.draft_attn_backend = Attention(drafting.draft_attn_backend)
    drafting.draft_extend_attn_backend = Attention(runner.attn_backend)
    decode = PhaseConfig(backend="full", bs=SIZES, max_bs=max(SIZES))
    with get_exec().graph.override(cuda_graph_config=CudaGraphConfig(decode=decode)), torch.no_grad():
        EagleDraftWorker.init_cuda_graphs(drafting)  # a window's graphs are tested in tests/sglang_mtpc
    assert drafting.speculative_num_steps == steps
    found = Captured(steps, spec.speculative_num_steps, *map(_sizes, _graphs(drafting)), [])
    if spec.speculative_adaptive:
        with get_exec().graph.override(cuda_graph_config=CudaGraphConfig(decode=decode)), torch.no_grad():
            found.shorter.extend(_shorter(worker, tokens) for tokens in (0, 2))
    return found


def _graphs(drafting: Any) -> tuple[Any, Any]:
    """The runners of the draft loop and of the pass over what was verified; also of a runtime state."""
    return drafting.cuda_graph_runner, drafting.cuda_graph_runner_for_draft_extend


def _sizes(runner: Any) -> list[int]:
    """Batch sizes that a runner has captured."""
    return [] if runner is None else sorted(set(runner.backend.sizes))


def _shorter(worker: Any, tokens: int) -> list[Any]:
    """What the runtime state of another draft length captures of the draft worker, and changes where it is entered."""
    drafting, target = worker._draft_worker, worker.target_worker.model_runner
    init = type(drafting).init_attention_backend

    def init_attention_backend() -> None:
        init(drafting)
        runner = drafting.draft_runner
        if drafting.draft_attn_backend is not None:
            drafting.draft_attn_backend = runner.draft_attn_backend = Attention(drafting.draft_attn_backend)
        drafting.draft_extend_attn_backend = Attention(runner.attn_backend)

    drafting.init_attention_backend = init_attention_backend
    target._get_attention_backend = lambda init_new_workspace: target.attn_backend
    own = worker.speculative_num_steps, drafting.draft_attn_backend
    state = worker.build_adaptive_runtime_state(tokens, tokens + 1, SIZES)
    assert (worker.speculative_num_steps, drafting.draft_attn_backend) == own
    worker.apply_runtime_state(state)
    assert worker.speculative_num_draft_tokens == drafting.speculative_num_draft_tokens == tokens + 1
    return [tokens, drafting.speculative_num_steps, *map(_sizes, _graphs(state)), state.draft_attn_backend is own[1]]


def main() -> None:
    """Of all command lines, one JSON list."""
    from sglang.srt.plugins import load_plugins

    load_plugins()
    _patch()
    found = []
    for number, arguments in enumerate(json.load(sys.stdin)):
        try:
            found.append(_capture(arguments, first=not number))
        except Exception as error:
            traceback.print_exc()
            found.append(Captured(0, 0, [], [], [], f"{type(error).__name__}: {error}"))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
