"""Runtime states of a worker without draft model, and SGLang's own verification of steps without drafts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sglang_mtpc import runtime_states
from sglang_mtpc.runtime_states import TargetStates

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


class Configuration(SimpleNamespace):
    """SGLang's configuration, as the worker reads and changes it."""

    @contextmanager
    def override(self, **changed: Any) -> Iterator[None]:
        """For a while."""
        before = dict(vars(self))
        vars(self).update(changed)
        try:
            yield
        finally:
            vars(self).update(before)

    @property
    def numbers(self) -> tuple[int, int]:
        """Draft tokens and verified tokens."""
        return self.speculative_num_steps, self.speculative_num_draft_tokens


@pytest.fixture
def configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Configuration:
    file = tmp_path / "steps.json"
    file.write_text(json.dumps(CANDIDATES))
    values = Configuration(
        speculative_num_steps=3, speculative_num_draft_tokens=4, speculative_adaptive_config=str(file)
    )
    context = SimpleNamespace(override=lambda source, **changed: vars(values).update(changed))
    monkeypatch.setattr(runtime_states, "get_context", lambda: context)
    monkeypatch.setattr(runtime_states, "get_spec", lambda: values)
    return values


@pytest.mark.parametrize(("device", "captures"), [("cpu", True), ("cuda", True), ("cuda", False)])
def test_every_length_has_a_backend_and_graphs_of_its_own_on_a_gpu(
    configuration: Configuration, device: str, captures: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = list[tuple[int, int]]()
    monkeypatch.setattr(runtime_states, "check_cuda_graph_backend", lambda *_: not captures)

    def backend(init_new_workspace: bool) -> str:
        assert init_new_workspace
        target.init_new_workspace = True  # as SGLang leaves it
        return f"backend of {configuration.speculative_num_steps}"

    def graphs(captured: Any, attn_backend: str, **sizes: int) -> str:
        assert captured is target
        assert tuple(sizes.values()) == configuration.numbers
        built.append(configuration.numbers)
        return f"graphs with the {attn_backend}"

    target: Any = SimpleNamespace(device=device, attn_backend="backend", decode_cuda_graph_runner="graphs")
    target.init_new_workspace, target._get_attention_backend = False, backend
    monkeypatch.setattr(runtime_states, "DecodeCudaGraphRunner", graphs)
    states = TargetStates(target)
    states.prepare()
    assert configuration.numbers == (3, 4)
    assert not target.init_new_workspace
    assert built == ([(0, 1), (1, 2)] if device == "cuda" and captures else [])
    for requests, steps in ((1, 3), (3, 1), (19, 1), (20, 0), (2, 3)):
        states.activate(requests)
        assert states.speculative_num_steps == steps
        assert configuration.numbers == (steps, steps + 1)
        own = device == "cuda" and steps != 3
        assert target.attn_backend == (f"backend of {steps}" if own else "backend")
        captured = f"graphs with the backend of {steps}" if captures else None
        assert target.decode_cuda_graph_runner == (captured if own else "graphs")


def test_sglangs_kernel_samples_the_target_where_nothing_is_drafted() -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", NO_DRAFTS], check=True, env=environment)
