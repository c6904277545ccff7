"""Engines alone in their processes, as `mtpc bench --offline` and `mtpc distill --offline` use them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mtpc.errors import MTPCError
from mtpc.lab.distill.client import SampledCompletion, complete
from mtpc.lab.distill.settings import SamplingOptions
from mtpc.lab.servers.connection import Connection
from mtpc.lab.servers.engine import ServerSettings
from mtpc.lab.servers.server import running
from mtpc.lab.servers.vllm_engine import VLLM_OFFLINE
from tests.engine.conftest import Models
from tests.engine.exact import Reference
from tests.engine.server import ENVIRONMENT

pytestmark = pytest.mark.engine
TOKENS, REQUESTS = 24, 4
END = 257  # ends an answer


@pytest.mark.thorough
def test_offline_engines_are_measured(tmp_path: Path, random_models: Models) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"text": f"number {i}: "}) + "\n" for i in range(REQUESTS)))
    mtpc = str(Path(sys.executable).with_name("mtpc"))
    command = [mtpc, "bench", "--offline", "--target", str(random_models.target)]
    command += ["--drafter", str(random_models.drafter), "--prompts", str(prompts), "--out", str(tmp_path / "out")]
    command += ["--batch-sizes", "1,2", "--temperatures", "0", "--rounds", "1", "--requests", str(REQUESTS)]
    command += ["--max-tokens", str(TOKENS), "--server-arg=--dtype=float32", "--server-arg=--enforce-eager"]
    subprocess.run(command, env=os.environ | ENVIRONMENT, check=True, capture_output=True, timeout=900)
    points = json.loads((tmp_path / "out" / "results.json").read_text())["points"]
    assert [point["batch_size"] for point in points] == [1, 2]
    for point in points:
        assert point["identical_greedy_share"] == 1.0
        assert point["acceptance_length"] > 1
        (plain,), (drafted,) = point["rounds_without"], point["rounds_with"]
        assert plain["tokens"] == drafted["tokens"] == TOKENS * REQUESTS
        assert plain["drafts"] == 0
        assert drafted["drafts"] >= REQUESTS
        own = point["others"]["n-gram 2-4:5"]
        assert own["identical_greedy_share"] == 1.0
        assert own["rounds_with"][0]["tokens"] == TOKENS * REQUESTS
        assert own["rounds_with"][0]["drafts"] < drafted["drafts"]
        assert 1 <= own["tokens_per_step"] < own["acceptance_length"]  # it drafts in some steps only
        assert plain["requests_in_flight"] == pytest.approx(point["batch_size"], rel=0.2)


def test_completions_side_by_side(tmp_path: Path, random_models: Models, tiny_reference: Reference) -> None:
    asked = [list(f"number {i}: ".encode()) for i in range(12)]
    settings = ServerSettings(random_models.target, 8, 256, extra=("--dtype", "float32", "--enforce-eager"))
    greedy = SamplingOptions(TOKENS, temperature=0.0, top_p=1.0, top_k=0)

    async def ask(url: str, prompts: list[list[int]]) -> list[SampledCompletion]:
        async with Connection(url) as connection:
            asked = (complete(connection, "offline", prompt, END, greedy, 0) for prompt in prompts)
            return await asyncio.gather(*asked)

    with running(VLLM_OFFLINE, settings, tmp_path / "log") as answering:
        url = answering().url
        found = asyncio.run(ask(url, asked))
        with pytest.raises(MTPCError, match="answered a request with status 500"):
            asyncio.run(ask(url, [[1 << 20]]))
        assert asyncio.run(ask(url, asked[:1])) == found[:1]  # it lives
    for prompt, answer in zip(asked, found, strict=True):
        assert list(answer.ids) == tiny_reference.greedy(prompt, TOKENS)[: len(answer.ids)]
        assert (len(answer.ids) == TOKENS) is (answer.finish == "length")
    assert sum(len(answer.ids) for answer in found) > 100
