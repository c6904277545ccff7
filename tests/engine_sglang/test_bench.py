"""`mtpc bench --engine sglang`: two servers, the same greedy text, every draft counted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.engine.conftest import Models
from tests.engine.prompts import prompts
from tests.engine_sglang.server import ENVIRONMENT
from tests.support.random_fastmtp import make_fastmtp

pytestmark = pytest.mark.engine
TOKENS, REQUESTS, DRAFTS = 48, 4, 3


def bench(models: Models, folder: Path) -> list[dict[str, Any]]:
    """The points of a small benchmark."""
    asked = folder / "prompts.jsonl"
    asked.write_text("".join(json.dumps({"text": prompt}) + "\n" for prompt in prompts(REQUESTS)))
    command = [str(Path(sys.executable).with_name("mtpc")), "bench", "--engine", "sglang"]
    command += ["--target", str(models.target), "--drafter", str(models.drafter), "--prompts", str(asked)]
    command += ["--batch-sizes", "1,2", "--temperatures", "0", "--rounds", "1", "--requests", str(REQUESTS)]
    command += ["--max-tokens", str(TOKENS), "--server-arg=--dtype=float32", "--out", str(folder / "out")]
    subprocess.run(command, env=os.environ | ENVIRONMENT, check=True, capture_output=True, timeout=1200)
    return list(json.loads((folder / "out" / "results.json").read_text())["points"])


@pytest.mark.thorough
def test_served_engines_are_measured(random_models: Models, tmp_path: Path) -> None:
    target = random_models.target
    points = bench(Models(target, make_fastmtp(tmp_path / "drafter", target), DRAFTS), tmp_path)
    assert [point["batch_size"] for point in points] == [1, 2]
    for point in points:
        assert point["identical_greedy_share"] == 1.0
        assert 0 < point["drafting_share_of_a_step"] < 1
        (plain,), (drafted,) = point["rounds_without"], point["rounds_with"]
        assert plain["tokens"] == drafted["tokens"] == TOKENS * REQUESTS
        assert plain["drafts"] == 0
        drafts, accepted = drafted["drafts"], drafted["accepted_tokens"]
        assert drafted["draft_tokens"] == drafts * DRAFTS
        assert sum(drafted["accepted_at_position"]) == accepted > 0
        # Each request's first token comes from its prompt; its last step may bring more than is left to complete.
        surplus = REQUESTS + drafts + accepted - drafted["tokens"]
        assert 0 <= surplus <= REQUESTS * DRAFTS
        own = point["others"]["n-gram 1-7:11"]
        assert own["identical_greedy_share"] == 1.0
        assert own["rounds_with"][0]["tokens"] == TOKENS * REQUESTS
        assert own["tokens_per_step"] > 1
