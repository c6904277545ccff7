"""Rows of the size card: step time of random targets of 8 billion parameters, without and with random drafters.

Only the times of decoding steps, drafting and verification are meaningful: the time until first tokens is subtracted.
Acceptance is that of random weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, PretrainedConfig, Qwen3Config

from mtpc.lab.servers.speculation import resolve_num_drafts, speculative_values
from mtpc.lab.table import Table
from mtpc.lab.training.recipes.gumiho_recipe import config_for as gumiho_config
from mtpc.methods.drafter import Drafter, save_drafter
from mtpc.methods.fastmtp import FastMTP, config_for
from mtpc.methods.gumiho import Gumiho
from mtpc.methods.mtpc import MTPC, MTPCConfig
from tests.gpu.running import Figures, Run

CONCURRENCY, TOKENS, PROMPT = (1, 8, 32, 64), 96, 256
KEY = ("target", "drafter", "temperature", "concurrency")
LLAMA = {  # Llama-3.1-8B's published config.json
    "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256, "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "bos_token_id": 128000, "eos_token_id": 128001,
}  # fmt: skip
QWEN = {  # Qwen3-8B's
    "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "bos_token_id": 151643, "eos_token_id": 151645,
}  # fmt: skip
SMALL = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 32, "vocab_size": 500, "max_position_embeddings": 512, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
SHAPES: dict[str, tuple[type[PretrainedConfig], str, dict[str, Any]]] = {
    "llama-3.1-8b": (LlamaConfig, "LlamaForCausalLM", LLAMA),
    "qwen3-8b": (Qwen3Config, "Qwen3ForCausalLM", QWEN),
}


def make_target(folder: Path, name: str, small: bool) -> PretrainedConfig:
    """Write a folder with a configuration and without weights."""
    kind, architecture, shape = SHAPES[name]
    config = kind(**(shape | SMALL if small else shape), architectures=[architecture], dtype="bfloat16")
    config.save_pretrained(folder)
    return config


def planned(name: str, target: PretrainedConfig) -> Drafter:
    """Return a drafter on the meta device, whose layers have the target's shape."""
    with torch.device("meta"):
        if name == "fastmtp":
            return Drafter(FastMTP(), config_for(target, 3))
        if name == "gumiho":
            return Drafter(Gumiho(), gumiho_config(target, {"positions": 5}, num_hidden_layers=2))
        config = MTPCConfig(
            circuit="hmm", window=5, rank=8, leaf_features=256, hidden_size=target.hidden_size,
            vocab_size=target.vocab_size,
        )  # fmt: skip
        return Drafter(MTPC(), config)


def make_drafter(folder: Path, name: str, target: PretrainedConfig, device: torch.device) -> Path:
    """Write a random bfloat16 drafter, whose weights are drawn on the device."""
    drafter = planned(name, target).to(torch.bfloat16).to_empty(device=device)
    with torch.no_grad():
        for parameter in drafter.parameters():
            parameter.normal_(1.0 if parameter.ndim == 1 else 0.0, 0.02)
    save_drafter(folder, drafter, {"purpose": "random, for measurements of time"})
    return folder


def measured(size: str, name: str) -> Callable[[Run], str]:
    """Row: measure a target, without or with a drafter, at every concurrency."""

    def row(run: Run) -> str:
        from benchmarks.gpu.on_vllm import VLLM

        config = make_target(run.folder / "target", size, small=not run.on_gpu)
        speculative = None
        if name != "none":
            drafter = make_drafter(run.folder / "drafter", name, config, run.device)
            speculative = speculative_values(drafter, resolve_num_drafts(drafter, None))
        sizes, tokens, length = (CONCURRENCY, TOKENS, PROMPT) if run.on_gpu else ((1, 2), 6, 16)
        served = VLLM(
            run, run.folder / "target", speculative, load_format="dummy", skip_tokenizer_init=True,
            max_num_seqs=max(sizes), max_model_len=length + 2 * tokens, enable_prefix_caching=False,
        )  # fmt: skip
        generator = torch.Generator().manual_seed(0)
        asked = torch.randint(3, config.vocab_size, (max(sizes), length), generator=generator).tolist()
        found: Figures = []
        for temperature in (0.0, 1.0):
            served.complete(asked, max(sizes), temperature, [4] * len(asked))  # kernels are compiled on first use
            for concurrency in sizes:
                first, whole = (
                    served.complete(asked[:concurrency], concurrency, temperature, [each] * concurrency)
                    for each in (1, tokens)
                )
                done = whole.after(first)
                found.append({
                    "target": size, "drafter": name, "temperature": temperature, "concurrency": concurrency,
                    "step_ms": done.step_ms(concurrency), "drafting_ms": done.draft_ms(concurrency),
                    "acceptance_length": done.acceptance_length,
                })  # fmt: skip
                run.keep(found)
        cells = (f"{one['temperature']:g}/{one['concurrency']}: {one['step_ms']:.2f}" for one in found)
        return f"ms per step by temperature/concurrency: {', '.join(cells)}"

    return row


def table(rows: Mapping[str, Figures]) -> Table:
    """Return milliseconds per step; with a drafter also those of drafting, and the ratio to a step without drafts."""
    found = [one for figures in rows.values() for one in figures]
    sizes = sorted({one["concurrency"] for one in found})
    by_key = {tuple(one[key] for key in KEY): one for one in found}
    lines = []
    for target, drafter, temperature in dict.fromkeys(tuple(one[key] for key in KEY[:3]) for one in found):
        cells = []
        for size in sizes:
            one, plain = (by_key.get((target, each, temperature, size)) for each in (drafter, "none"))
            if one is None:
                cells.append("-")
            elif drafter == "none" or plain is None:
                cells.append(f"{one['step_ms']:.2f}")
            else:
                ratio = one["step_ms"] / plain["step_ms"]
                cells.append(f"{one['step_ms']:.2f} ({one['drafting_ms']:.2f}, {ratio:.2f}x)")
        lines.append([target, drafter, f"{temperature:g}", *cells])
    title = "ms per step with random weights (drafting, ratio to a step without drafts), by concurrency"
    return Table(title, ["target", "drafter", "T", *map(str, sizes)], lines)
