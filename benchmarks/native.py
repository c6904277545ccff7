r"""A chat model with an MTP layer of its own, which vLLM itself drafts with: from all tokens, and by language.

    python -m benchmarks.native --target runs/smollm2 --drafter weights/smollm2-fastmtp

Written is a checkpoint in MiMo's layout, of a Llama and a FastMTP drafter of one layer, whose tensors that layout names
alike.  vLLM serves it without drafts, with ``"method": "mtp"`` and with the drafter's draft vocabularies, in float32.
Its layer reads states before the final norm, so that norm's weights go into the layer's own.  One draft a step.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from rich.console import Console
from safetensors.torch import load_file, save_file

from benchmarks.arguments import one_sentence
from mtpc.lab.table import Table

WEIGHTS = "model.safetensors"
QUESTIONS = (
    "What is a rainbow?",
    "Explique ce qu'est un arc-en-ciel.",
    "¿Qué es un arcoíris?",
    "Write a Python function that reverses a list.",
    "Tell me about the sea.",
    "Quelle est la capitale de la France ?",
)
DRAFTING = {"method": "mtp", "num_speculative_tokens": 1, "draft_sample_method": "probabilistic"}


class Said(NamedTuple):
    """Greedy answers, and how many drafts of how many were accepted."""

    answers: list[list[int]]
    accepted: float
    drafted: float


def as_mimo(target: Path, drafter: Path, folder: Path) -> None:
    """Write the checkpoint."""
    copytree(target, folder)
    config = json.loads((target / "config.json").read_text())
    weights, layer = load_file(target / WEIGHTS), load_file(drafter / WEIGHTS)
    final, key = weights["model.norm.weight"].double(), "model.mtp_layers.0.hidden_layernorm.weight"
    layer[key] = (layer[key].double() * final / final.square().mean().sqrt()).to(layer[key].dtype)
    weights |= layer
    weights.setdefault("lm_head.weight", weights["model.embed_tokens.weight"].clone())
    for name in [name for name in weights if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))]:
        weights[name.replace("weight", "bias")] = torch.zeros_like(weights[name][:, 0])
    mimo = {"architectures": ["MiMoForCausalLM"], "model_type": "qwen2", "num_nextn_predict_layers": 1}
    (folder / "config.json").write_text(json.dumps(config | mimo | {"tie_word_embeddings": False}))
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def answers(folder: str, drafting: dict[str, Any] | None, section: dict[str, Any], length: int) -> Said:
    """Of vLLM in this process, to all questions at once."""
    from vllm import LLM, SamplingParams

    llm = LLM(
        folder, dtype="float32", enforce_eager=True, max_model_len=512, disable_log_stats=False,
        speculative_config=drafting, additional_config={"mtpc": section} if section else {},
    )  # fmt: skip
    asked: Any = [[{"role": "user", "content": question}] for question in QUESTIONS]
    found = llm.chat(asked, SamplingParams(temperature=0, max_tokens=length, ignore_eos=True))
    metrics = llm.get_metrics()
    llm.llm_engine.engine_core.shutdown()  # else this process waits for the engine's
    counted = {metric.name: metric.value for metric in metrics if hasattr(metric, "value")}
    names = (f"vllm:spec_decode_num_{what}_tokens" for what in ("accepted", "draft"))
    return Said([list(one.outputs[0].token_ids) for one in found], *(counted.get(name, 0.0) for name in names))


@one_sentence
def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table with a row for each way."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--target", type=Path, required=True, help="a Llama, with its chat template")
    parser.add_argument("--drafter", type=Path, required=True, help="a FastMTP drafter with a vocabulary.json")
    parser.add_argument("--size", type=int, default=8192, help="tokens of each draft vocabulary")
    parser.add_argument("--max-tokens", type=int, default=48)
    chosen = parser.parse_args(arguments)
    section = {"vocabulary": str(chosen.drafter / "vocabulary.json"), "size": chosen.size}
    ways: dict[str, tuple[dict[str, Any] | None, dict[str, Any]]] = {
        "no drafts": (None, {}),
        "all tokens": (DRAFTING, {}),
        f"{chosen.size:,} tokens by language": (DRAFTING, section),
    }
    table = Table("greedy answers", ["drafts from", "drafts", "accepted", "of them", "same text"], [])
    with TemporaryDirectory() as folder:
        as_mimo(chosen.target, chosen.drafter, Path(folder) / "mimo")
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as pool:
            made = [pool.submit(answers, f"{folder}/mimo", *way, chosen.max_tokens) for way in ways.values()]
            found = [future.result() for future in made]
    for name, said in zip(ways, found, strict=True):
        share = f"{said.accepted / said.drafted:.3f}" if said.drafted else "-"
        same = "yes" if said.answers == found[0].answers else "no"
        table.rows.append([name, f"{said.drafted:.0f}", f"{said.accepted:.0f}", share, same])
    Console(width=120).print(table.to_markdown(), markup=False)


if __name__ == "__main__":
    sys.exit(main())
