"""What ships beside the code holds together: serving configurations, the Makefile, the prompts."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mtpc.drafter import Target, load_drafter

yaml = pytest.importorskip("yaml", reason="the engine's environment brings it")

ROOT = Path(__file__).parent.parent
CONFIGS = sorted((ROOT / "serve_configs" / "vllm").glob("*.yaml"))


def read(config: Path) -> dict[str, Any]:
    """A configuration file."""
    return dict(yaml.safe_load(config.read_text()))


def test_there_are_configurations() -> None:
    assert "byte.yaml" in {config.name for config in CONFIGS}


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_a_configuration_names_what_ships(config: Path) -> None:
    values = read(config)
    target = json.loads((ROOT / values["model"] / "config.json").read_text())
    speculative = values.get("speculative-config")
    if speculative is not None:
        facts = Target(target["hidden_size"], target["vocab_size"])
        drafter = load_drafter(ROOT / speculative["model"], facts)
        assert 1 <= speculative["num_speculative_tokens"] <= drafter.max_drafts
    assert values["max-model-len"] <= target["max_position_embeddings"]


def test_every_configuration_serves_the_same_drafter() -> None:
    served = {read(config).get("speculative-config", {}).get("model") for config in CONFIGS}
    assert len(served - {None}) == 1


def test_make_takes_the_names_from_the_configuration() -> None:
    values = read(ROOT / "serve_configs" / "vllm" / "byte.yaml")
    done = subprocess.run(["make", "-n", "demo"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert f"--target {values['model']} --drafter {values['speculative-config']['model']}" in done.stdout


def test_prompts_are_short_and_of_both_kinds() -> None:
    lines = (ROOT / "benchmarks" / "prompts.jsonl").read_text().splitlines()
    prompts = [json.loads(line) for line in lines]
    assert len({prompt["text"] for prompt in prompts}) == 60
    assert sum(prompt["kind"] == "prose" for prompt in prompts) == 30
    assert all(80 <= len(prompt["text"].encode()) <= 200 for prompt in prompts)
