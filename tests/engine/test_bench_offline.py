"""`mtpc bench --offline`: two engines in a process each, the same greedy text, every token counted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.conftest import Models
from tests.engine.server import ENVIRONMENT

pytestmark = pytest.mark.engine
TOKENS, REQUESTS = 24, 4


def test_offline_engines_are_measured(tmp_path: Path, random_models: Models) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"text": f"number {i}: "}) + "\n" for i in range(REQUESTS)))
    mtpc = str(Path(sys.executable).with_name("mtpc"))
    command = [mtpc, "bench", "--offline", "--target", str(random_models.target)]
    command += ["--drafter", str(random_models.drafter), "--prompts", str(prompts), "--out", str(tmp_path / "out")]
    command += ["--batch-sizes", "1,2", "--temperatures", "0", "--rounds", "1", "--requests", str(REQUESTS)]
    command += ["--max-tokens", str(TOKENS), "--server-arg=--dtype=float32", "--server-arg=--enforce-eager"]
    subprocess.run(command, env=os.environ | ENVIRONMENT, check=True, capture_output=True, timeout=300)
    points = json.loads((tmp_path / "out" / "results.json").read_text())["points"]
    assert [point["batch_size"] for point in points] == [1, 2]
    for point in points:
        assert point["identical_greedy_share"] == 1.0
        assert point["acceptance_length"] > 1
        (plain,), (drafted,) = point["rounds_without"], point["rounds_with"]
        assert plain["tokens"] == drafted["tokens"] == TOKENS * REQUESTS
        assert plain["drafts"] == 0
        assert drafted["drafts"] >= REQUESTS
        assert plain["requests_in_flight"] == pytest.approx(point["batch_size"], rel=0.2)
