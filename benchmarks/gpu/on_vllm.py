"""vLLM's engine for the GPU cards, without its HTTP server."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client import generate_latest
from vllm import EngineArgs, LLMEngine, SamplingParams, TokensPrompt

from benchmarks.gpu.completed import FEW, Completed, seconds_of_drafting
from mtpc.lab.servers.prometheus import parse, total
from mtpc.metrics.draft_clock import VARIABLE
from tests.gpu.running import BREAKABLE, PIECEWISE, Run
from vllm_mtpc.offline import complete

AS_SERVED = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}  # runs the engine in a separate process, as a server does
ON_CPU = {"enforce_eager": True, "dtype": "float32", "gpu_memory_utilization": 0.2}


class Counters(NamedTuple):
    """Draft tokens since the engine started."""

    accepted: float
    drafted: float


def counters() -> Counters:
    """Return the counters of this process's engine."""
    page = parse(generate_latest().decode())
    names = ("accepted", "draft")
    return Counters(*(total(page, f"vllm:spec_decode_num_{name}_tokens_total") for name in names))


def built(run: Run, target: Path, speculative: dict[str, Any] | None, **more: Any) -> LLMEngine:
    """Start an engine.

    Args:
        run: The row that measures.
        target: Folder of the target.
        speculative: The speculative-config; None for no drafter.
        more: Arguments of ``EngineArgs``; those in `Run.vllm` take precedence.
    """
    os.environ |= BREAKABLE
    captured = {"compilation_config": PIECEWISE} if run.on_gpu else ON_CPU
    arguments = {"model": str(target), "speculative_config": speculative, **captured, **more, **run.vllm}
    return LLMEngine.from_engine_args(EngineArgs(**arguments))


def generated(engine: LLMEngine, prompts: list[list[int]], length: int) -> list[list[int]]:
    """Generate greedily after all prompts at once."""
    greedy = SamplingParams(temperature=0, max_tokens=length, ignore_eos=True)
    for index, prompt in enumerate(prompts):
        engine.add_request(str(index), TokensPrompt(prompt_token_ids=prompt), greedy)
    texts: list[list[int]] = [[] for _ in prompts]
    while engine.has_unfinished_requests():
        for output in engine.step():
            texts[int(output.request_id)] = list(output.outputs[0].token_ids)
    return texts


class VLLM:
    """See `benchmarks.gpu.completed.Engine`."""

    def __init__(self, run: Run, target: Path, speculative: dict[str, Any] | None, **more: Any) -> None:
        self.times = run.folder / "draft-times.json"
        os.environ |= {VARIABLE: str(self.times), **AS_SERVED}
        self.engine = built(run, target, speculative, **more)

    def complete(
        self, prompts: list[list[int]], concurrency: int, temperature: float, lengths: Sequence[int]
    ) -> Completed:
        """See `benchmarks.gpu.completed.Engine`."""

        def completed(prompts: list[list[int]], lengths: Sequence[int]) -> dict[str, Any]:
            body = {
                "prompts": [{"prompt_token_ids": prompt} for prompt in prompts], "limits": lengths,
                "concurrency": concurrency, "temperature": temperature, "ignore_eos": True,
            }  # fmt: skip
            return complete(self.engine, body)

        before = seconds_of_drafting(self.times, lambda: completed(prompts[:1], [FEW]))
        done = completed(prompts, lengths)
        generated, steps = (sum(one[key] for one in done["completions"]) for key in ("tokens", "steps"))
        drafting = seconds_of_drafting(self.times, lambda: completed(prompts[:1], [FEW])) - before
        return Completed(len(prompts), generated, steps, done["seconds"], drafting)
