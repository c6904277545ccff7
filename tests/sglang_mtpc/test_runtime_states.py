"""Runtime states of a worker without draft model, and SGLang's own verification of steps without drafts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sglang_mtpc import runtime_states
from sglang_mtpc.runtime_states import TargetStates

SIZES = [1, 2, 4, 8]  # batch sizes of the target's CUDA graphs
CANDIDATES = {"1": {"candidate_steps": [3]}, "3": {"candidate_steps": [1]}, "20": {"candidate_steps": [0]}}
# SGLang's kernel in Triton's interpreter: without drafts it samples the target's distribution, and reads no other.
NO_DRAFTS = """
import torch
from sglang.kernels.ops.speculative.reject_sampling import chain_speculative_sampling_triton as verify
rows, size = 64, 300
target, coins = torch.rand(rows, 1, size).softmax(-1), torch.rand(rows)
emitted, accepted = torch.zeros(rows, dtype=torch.int32), torch.empty(rows, dtype=torch.int32)
index, root = torch.full((rows, 1), -1, dtype=torch.int32), torch.zeros(rows, 1, dtype=torch.int64)
places, drafts = torch.arange(rows)[:, None], torch.empty(rows, 0, size)
verify(emitted, index, accepted, root, places, None, None, coins[:, None], coins, target, drafts, 1.0, 1.0, True)
below = target[:, 0].cumsum(1) > coins[:, None]
assert (emitted - below.int().argmax(1)).abs().max() <= 1  # the kernel adds in another order
assert len(set(emitted.tolist())) > 40
assert not accepted.any() and torch.equal(index, places.int())
"""


@pytest.fixture
def configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """SGLang's configuration, as the worker reads and changes it."""
    file = tmp_path / "steps.json"
    file.write_text(json.dumps(CANDIDATES))
    values = SimpleNamespace(
        speculative_num_steps=3,
        speculative_num_draft_tokens=4,
        speculative_adaptive_config=str(file),
        cuda_graph_bs_decode=SIZES,
    )
    context = SimpleNamespace(override=lambda source, **changed: values.__dict__.update(changed))
    monkeypatch.setattr(runtime_states, "get_context", lambda: context)
    monkeypatch.setattr(runtime_states, "get_spec", lambda: values)
    monkeypatch.setattr(runtime_states, "get_exec", lambda: SimpleNamespace(graph=values))
    monkeypatch.setattr(runtime_states, "check_cuda_graph_backend", lambda *_: False)
    return values


def numbers(configuration: SimpleNamespace) -> tuple[int, int, list[int]]:
    """Draft tokens, verified tokens and captured batch sizes."""
    steps, tokens = configuration.speculative_num_steps, configuration.speculative_num_draft_tokens
    return steps, tokens, configuration.cuda_graph_bs_decode


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_length_has_a_backend_and_graphs_of_its_own_on_a_gpu(
    configuration: SimpleNamespace, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[tuple[int, int, list[int]]] = []

    def backend(init_new_workspace: bool) -> str:
        assert init_new_workspace
        target.init_new_workspace = True  # as SGLang leaves it
        return f"backend of {configuration.speculative_num_steps}"

    def graphs(captured: Any, attn_backend: str, **sizes: int) -> str:
        assert captured is target
        assert tuple(sizes.values()) == numbers(configuration)[:2]
        built.append(numbers(configuration))
        return f"graphs with the {attn_backend}"

    target: Any = SimpleNamespace(device=device, attn_backend="backend", decode_cuda_graph_runner="graphs")
    target.init_new_workspace, target._get_attention_backend = False, backend
    monkeypatch.setattr(runtime_states, "DecodeCudaGraphRunner", graphs)
    states = TargetStates(target)
    states.prepare()
    assert numbers(configuration) == (3, 4, SIZES)
    assert not target.init_new_workspace
    # Three or more requests draft one token; a batch is routed as its graph's size. No graph serves 20 requests.
    assert built == ([] if device == "cpu" else [(1, 2, [4, 8])])
    for requests, steps in ((1, 3), (3, 1), (40, 0), (2, 3)):
        states.activate(requests)
        assert states.speculative_num_steps == steps
        assert numbers(configuration) == (steps, steps + 1, SIZES)
        own = device == "cuda" and steps != 3
        assert target.attn_backend == (f"backend of {steps}" if own else "backend")
        assert target.decode_cuda_graph_runner == (
            "graphs" if not own else f"graphs with the backend of {steps}" if steps else None
        )


def test_sglangs_kernel_samples_the_target_where_nothing_is_drafted() -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", NO_DRAFTS], check=True, env=environment)
