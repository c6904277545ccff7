"""SGLang's engine for the GPU cards."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sglang
from sglang.srt.plugins import load_plugins
from sglang.srt.server_args import prepare_server_args

from benchmarks.gpu.completed import FEW, Completed, seconds_of_drafting
from mtpc.metrics.draft_clock import VARIABLE
from tests.gpu.running import Run

ON_GPU = ("--mem-fraction-static", "0.6")
ON_CPU = ("--device", "cpu", "--max-total-tokens", "8192", "--dtype", "float32")


class SGLang:
    """See `benchmarks.gpu.completed.Engine`.

    Args:
        run: The row that measures.
        target: Folder of the target.
        arguments: Words of SGLang's command line.
    """

    def __init__(self, run: Run, target: Path, arguments: Sequence[str]) -> None:
        load_plugins()
        words = ["--model-path", str(target), "--log-level", "warning", *(ON_GPU if run.on_gpu else ON_CPU)]
        settings = prepare_server_args([*words, "--disable-radix-cache", *arguments, *run.sglang_words])
        self.times = run.folder / "draft-times.json"
        os.environ[VARIABLE] = str(self.times)
        self.engine = sglang.Engine(server_args=settings)

    def complete(
        self, prompts: list[list[int]], concurrency: int, temperature: float, lengths: Sequence[int]
    ) -> Completed:
        """See `benchmarks.gpu.completed.Engine`."""

        async def completed(prompts: list[list[int]], lengths: Sequence[int]) -> list[dict[str, Any]]:
            free = asyncio.Semaphore(concurrency)

            async def one(prompt: list[int], length: int) -> dict[str, Any]:
                sampling = {"temperature": temperature, "max_new_tokens": length, "ignore_eos": True}
                async with free:
                    answer = await self.engine.async_generate(input_ids=prompt, sampling_params=sampling)
                return dict(answer["meta_info"])

            return await asyncio.gather(*map(one, prompts, lengths))

        run = self.engine.loop.run_until_complete
        before = seconds_of_drafting(self.times, lambda: run(completed(prompts[:1], [FEW])))
        started = time.perf_counter()
        answers = run(completed(prompts, lengths))
        seconds = time.perf_counter() - started
        generated = sum(answer["completion_tokens"] for answer in answers)
        # The forward pass of the prompt samples the first token.
        steps = sum(1 + answer.get("spec_verify_ct", answer["completion_tokens"] - 1) for answer in answers)
        drafting = seconds_of_drafting(self.times, lambda: run(completed(prompts[:1], [FEW]))) - before
        return Completed(len(prompts), generated, steps, seconds, drafting)
