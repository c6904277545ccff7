"""Runs Model Runner V2 on a CPU in one process and prints its outputs as JSON; see test_runner_v2.py.

This is a separate script, because Triton decides when it is imported whether it interprets kernels.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from prometheus_client import REGISTRY, generate_latest
from torch import Tensor
from vllm import LLM, SamplingParams, TokensPrompt

from mtpc.lab.servers.prometheus import parse, total
from mtpc.metrics.exporter import EVERY
from tests.gpu.waiting import Waits
from tests.support.replayed_graphs import Replays, replay_instead_of_capture
from vllm_mtpc.native.v2 import NativeSpeculator
from vllm_mtpc.v2.mixing import MixingSpeculator
from vllm_mtpc.v2.speculator import Speculator


def plugin(name: str) -> None:
    """Register a test's plugin."""
    sys.path.append(str(Path(__file__).parents[1] / "support" / name))
    import_module(name).register()


class Watched:
    """What speculators do from now on: where ``propose`` waits, and requests with something to copy, by step."""

    def __init__(self, waits: Waits) -> None:
        self.copies: list[int] = []
        for kind in (Speculator, NativeSpeculator):
            self.watch(kind, waits)

    def watch(self, kind: Any, waits: Waits) -> None:
        """Of one class."""
        propose = kind.propose

        def watched(speculator: MixingSpeculator, input_batch: Any, *args: Any, **named: Any) -> Tensor:
            with waits:
                drafts: Tensor = propose(speculator, input_batch, *args, **named)
            if speculator.copying is not None and not named.get("dummy_run"):
                chances = speculator.copying.copied.chances[: input_batch.num_reqs]
                self.copies.append(int((chances > 0).any(1).sum()))
            return drafts

        kind.propose = watched


def memory(llm: LLM) -> dict[str, int]:
    """MB of a GPU in use, and tokens that the KV cache has room for."""
    if not torch.cuda.is_available():
        return {}
    cache, (free, there) = llm.llm_engine.vllm_config.cache_config, torch.cuda.mem_get_info()
    return {"MB": (there - free) >> 20, "tokens of KV cache": (cache.num_gpu_blocks or 0) * (cache.block_size or 0)}


def main() -> None:
    """Greedy texts of all prompts together, then samples of the first prompt's next tokens, honest and misstated."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target", type=Path)
    parser.add_argument("drafter", type=Path)
    parser.add_argument("prompts", type=json.loads, help="token ids of each")
    parser.add_argument("--plain", action="store_true", help="without the drafter")
    parser.add_argument("--method", default="eagle")
    parser.add_argument("--drafts", type=int, default=5)
    parser.add_argument("--greedy-length", type=int, default=32)
    parser.add_argument("--samples", type=int, default=0)
    parser.add_argument("--sample-length", type=int, default=3)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--draft-sample-method", default="probabilistic")
    parser.add_argument("--switch", help="a file for the plugin misstated_draft; without it there are no such samples")
    parser.add_argument("--replay", action="store_true", help="replay the draft as a CUDA graph would")
    parser.add_argument("--additional", type=json.loads, default={}, help="vLLM's additional-config")
    parser.add_argument("--record", help="a file for the drafts of every step")
    parser.add_argument("--graphs", action="store_true", help="vLLM's own CUDA graphs")
    parser.add_argument("--max-num-seqs", type=int, default=8, help="0: as many as vLLM has by default")
    parser.add_argument("--engine", type=json.loads, default={}, help="more arguments of vllm.LLM")
    options = parser.parse_args()
    if options.switch:
        os.environ["MISSTATED_DRAFTS"] = options.switch
        plugin("misstated_draft")
    if options.record:
        os.environ["RECORDED_DRAFTS"] = options.record
        plugin("recorded_drafts")
    waits = Waits()
    copies = Watched(waits).copies
    replays = replay_instead_of_capture((1, 2, 7)) if options.replay else Replays()
    room = {"max_num_seqs": options.max_num_seqs}
    speculative = {
        "method": options.method,
        "model": str(options.drafter),
        "num_speculative_tokens": options.drafts,
        "draft_sample_method": options.draft_sample_method,
    }
    llm = LLM(
        str(options.target),
        enforce_eager=not options.graphs,
        max_model_len=256,
        disable_log_stats=False,
        trust_remote_code=True,  # a MiMo target brings its configuration class
        additional_config=options.additional,
        speculative_config=None if options.plain else speculative,
        **{"dtype": "float32"} | (room if options.max_num_seqs else {}) | options.engine,
    )
    waits.count()
    prompts = [TokensPrompt(prompt_token_ids=prompt) for prompt in options.prompts]
    greedy = SamplingParams(temperature=0, max_tokens=options.greedy_length, ignore_eos=True)
    results: dict[str, Any] = {"greedy": [list(out.outputs[0].token_ids) for out in llm.generate(prompts, greedy)]}
    results["copied"] = [sum(copies)]
    if options.samples:
        sampled = SamplingParams(
            temperature=options.temperature, max_tokens=options.sample_length, ignore_eos=True, n=options.samples
        )
        os.environ["RECORDED_DRAFTS"] = os.devnull
        for name in ("samples", "misstated") if options.switch else ("samples",):
            if name == "misstated":
                Path(options.switch).touch()
            copies.clear()
            results[name] = [list(choice.token_ids) for choice in llm.generate(prompts[:1], sampled)[0].outputs]
            results["copied"].append(sum(copies))
    counters = {metric.name: metric.value for metric in llm.get_metrics() if hasattr(metric, "value")}
    results["accepted"] = counters.get("vllm:spec_decode_num_accepted_tokens", 0)
    results["drafted"] = counters.get("vllm:spec_decode_num_draft_tokens", 0)
    time.sleep(EVERY + 0.5)  # until all is shown
    page = parse(generate_latest(REGISTRY).decode())
    results["counted"] = [total(page, f"mtpc_{what}_total") for what in ("accepted_tokens", "draft_tokens", "requests")]
    results |= {"replays": replays.replayed, "padded": replays.padded, "waits": waits.found, "memory": memory(llm)}
    print(json.dumps(results), file=sys.__stdout__, flush=True)


if __name__ == "__main__":
    main()
