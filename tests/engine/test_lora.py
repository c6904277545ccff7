"""Requests with and without a LoRA adapter of the target: a drafter changes the output of neither.

On a CPU vLLM 0.32 gives a request without an adapter parts of the last one: those of the output head and, in a batch
with that adapter, all.  So the adapter here leaves the head alone, and a batch has one adapter or none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from tests.engine.exact import Reference
from tests.engine.prompts import prompts
from tests.engine.server import Server, speculative_config, tokens
from tests.support.often import each_of
from tests.support.random_fastmtp import make_fastmtp
from tests.support.random_gumiho import make_gumiho
from tests.support.random_lora import make_lora
from tests.support.random_models import make_drafter, make_target, make_target_leaves

pytestmark = pytest.mark.engine
RANK, ALPHA = 4, 8.0
ADAPTED = ("q_proj", "v_proj", "o_proj", "gate_proj", "down_proj")
LENGTH = 48
CASES: dict[str, Callable[[Path, Path], Path]] = {
    "mtpc": make_drafter,
    "mtpc through the target's head": make_target_leaves,
    "mtpc, LoRA": make_lora,
    "fastmtp": make_fastmtp,
    "gumiho": lambda folder, target: make_gumiho(folder, target, {"positions": 2, "blocks": 1}, num_hidden_layers=2),
}


def make_adapter(folder: Path, target: Path) -> Path:
    """A random adapter of the target as peft saves it, and the target with the adapter in its folder ``merged``."""
    torch.manual_seed(2)
    model, saved = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32), dict[str, Tensor]()
    for name, module in model.named_modules():
        if name.rpartition(".")[2] not in ADAPTED:
            continue
        weight: Tensor = module.weight.data
        a = torch.randn(RANK, weight.shape[1]) * weight.shape[1] ** -0.5
        b = torch.randn(weight.shape[0], RANK) * weight.std()
        weight += ALPHA / RANK * b @ a
        saved |= {f"base_model.model.{name}.lora_A.weight": a, f"base_model.model.{name}.lora_B.weight": b}
    model.save_pretrained(folder / "merged")
    save_file(saved, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "target_modules": list(ADAPTED), "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


class Served(NamedTuple):
    """A server, and the text of each model that it has, in transformers."""

    server: Server
    references: dict[str, Reference]


@pytest.fixture(scope="module", params=each_of(CASES, ("fastmtp",)))
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The server of a drafter and an adapter."""
    folder = tmp_path_factory.mktemp("lora")
    target = make_target(folder / "target")
    drafter, adapter = CASES[request.param](folder / "drafter", target), make_adapter(folder / "adapter", target)
    lora = ("--enable-lora", "--max-lora-rank", "8", "--lora-modules", f"adapter={adapter}", "--max-num-seqs", "8")
    with Server(target, folder / "log", *lora, *speculative_config(drafter, 4)) as server:
        yield Served(server, {"target": Reference(target), "adapter": Reference(adapter / "merged")})


def test_greedy_texts(served: Served) -> None:
    found = {}
    before = served.server.metric("vllm:spec_decode_num_accepted_tokens_total")
    for model, reference in served.references.items():
        answers = served.server.complete_all(prompts(6), 6, model=model, max_tokens=LENGTH, ignore_eos=True)
        found[model] = [tokens(answer)[0] for answer in answers]
        assert found[model] == [reference.greedy(list(prompt.encode()), LENGTH) for prompt in prompts(6)], model
    assert found["adapter"] != found["target"]
    assert served.server.metric("vllm:spec_decode_num_accepted_tokens_total") > before
