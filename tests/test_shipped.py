"""Files that ship with the code are consistent: serving configurations, the Makefile, the prompts."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from mtpc.files.target import Target
from mtpc.lab.text.prompts import SHIPPED
from mtpc.methods import method_of
from mtpc.methods.drafter import load_drafter
from mtpc.vocabulary.settings import open_vocabularies
from sglang_mtpc import token_map

yaml = pytest.importorskip("yaml", reason="the engine's environment brings it")

ROOT = Path(__file__).parent.parent
MADE = "runs/smollm2"  # by `make chat-target`
CHAT = Target(hidden_size=576, vocab_size=49152)
CONFIGS = sorted(config for engine in ("vllm", "sglang") for config in (ROOT / "serve_configs" / engine).glob("*.yaml"))


class Served(NamedTuple):
    """The values of a serving configuration, independent of the engine's keys."""

    target: str
    length: int
    drafter: str | None
    drafts: int | None  # where the engine does not take the drafter's window
    copies: bool = False


def read(config: Path) -> Served:
    """A configuration file of the engine that its folder names."""
    values = yaml.safe_load(config.read_text())
    if config.parent.name == "vllm":
        speculative = values.get("speculative-config", {})
        drafter, drafts = speculative.get("model"), speculative.get("num_speculative_tokens")
        copies = values.get("additional-config", {}).get("mtpc", {}).get("copy", False)
        return Served(values["model"], values["max-model-len"], drafter, drafts, copies)
    drafter, drafts = values.get("speculative-draft-model-path"), values.get("speculative-num-steps")
    copied = token_map.copies(values.get("speculative-token-map"))
    assert values.get("disable-overlap-schedule", False) == copied
    algorithm = None if drafter is None else method_of(ROOT / drafter).algorithm
    assert values.get("speculative-algorithm") == algorithm
    return Served(values["model-path"], values["context-length"], drafter, drafts, copied)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_each_engine_has_configurations_with_and_without_a_drafter(engine: str) -> None:
    names = {config.name for config in CONFIGS if config.parent.name == engine}
    assert {"byte.yaml", "byte-without-drafter.yaml"} < names


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: f"{config.parent.name}/{config.name}")
def test_a_configuration_names_what_ships(config: Path) -> None:
    served = read(config)
    assert (served.drafter is None) is config.name.endswith("without-drafter.yaml")
    if served.target == MADE:
        assert served.drafter is not None
        own = load_drafter(ROOT / served.drafter, CHAT).config.num_drafts
        assert served.drafts is not None
        assert served.drafts >= own if served.copies else served.drafts == own
        return
    target = json.loads((ROOT / served.target / "config.json").read_text())
    if served.drafter is not None:
        drafter = load_drafter(ROOT / served.drafter, Target(target["hidden_size"], target["vocab_size"]))
        assert served.drafts is None or 1 <= served.drafts <= drafter.config.max_drafts
    assert served.length <= target["max_position_embeddings"]


@pytest.mark.parametrize("kind", ["byte", "chat"])
def test_all_configurations_of_a_kind_serve_the_same_target(kind: str) -> None:
    all_of_it = [read(config) for config in CONFIGS if config.stem.split("-")[0] == kind]
    assert len(all_of_it) >= 2
    assert len({served.target for served in all_of_it}) == 1


def test_configurations_of_one_name_serve_the_same_drafter_in_both_engines() -> None:
    drafters: dict[str, set[str | None]] = {}
    for config in CONFIGS:
        drafters.setdefault(config.stem, set()).add(read(config).drafter)
    assert all(len(of_name) == 1 for of_name in drafters.values())
    assert drafters["byte"] == drafters["byte-tree"]
    assert drafters["chat"] == drafters["chat-copying"] == drafters["chat-copying-cpu"]


@pytest.mark.parametrize("name", ["smollm2-fastmtp", "smollm2-gumiho"])
def test_a_chat_drafter_brings_its_vocabulary(name: str) -> None:
    vocabularies = open_vocabularies({}, ROOT / "weights" / name, CHAT.vocab_size)
    assert vocabularies is not None
    assert vocabularies.detector is not None
    assert len(vocabularies.ids) >= 4


@pytest.mark.parametrize("goal", ["demo", "demo-sglang"])
def test_make_takes_the_names_from_the_configurations(goal: str) -> None:
    done = subprocess.run(["make", "-n", goal], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in ("byte.yaml", "chat.yaml"):
        served = read(ROOT / "serve_configs" / "vllm" / name)
        assert f"--pair {served.target} {served.drafter}" in done.stdout


def test_prompts_are_short_and_of_both_kinds() -> None:
    lines = SHIPPED.read_text().splitlines()
    prompts = [json.loads(line) for line in lines]
    assert len({prompt["text"] for prompt in prompts}) == 60
    assert sum(prompt["kind"] == "prose" for prompt in prompts) == 30
    assert all(80 <= len(prompt["text"].encode()) <= 200 for prompt in prompts)
