"""`vllm serve` with a broken drafter: one sentence at the end, no stack trace, no process left."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.engine.conftest import Models
from tests.engine.server import ARGUMENTS, ENVIRONMENT, command, processes_of_group, speculative_config
from tests.support.broken_drafters import BROKEN, Broken, broken_copy
from tests.support.random_fastmtp import make_fastmtp
from tests.support.starts import starts

pytestmark = pytest.mark.engine
# Every case goes through a server; this one through one of a process of its own.
CLI = "vllm.entrypoints.cli.main"
NAME = "another vocabulary"


def serve(target: Path, good: Path, case: Broken, folder: Path) -> tuple[int, str, list[int]]:
    """Exit code, standard error and surviving processes of one attempt."""
    settings = broken_copy(case, good, folder)
    arguments = speculative_config(folder, settings.pop("num_speculative_tokens"), **settings)
    process = subprocess.Popen(
        command(target, *arguments),
        env=os.environ | ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    _, errors = process.communicate(timeout=900)
    return process.returncode, errors, list(processes_of_group(process.pid))


def test_one_sentence_and_no_process(tmp_path: Path, random_models: Models) -> None:
    (case,) = (case for case in BROKEN if case.name == NAME)
    target, good, _ = random_models  # a window of 8
    code, errors, survivors = serve(target, good, case, tmp_path / "broken")
    last = errors.splitlines()[-1]
    assert code == 1
    assert last.startswith("mtpc: ")
    assert case.sentence in last
    assert "Traceback" not in errors
    assert not survivors


@pytest.mark.thorough
def test_whatever_is_wrong_is_one_sentence(tmp_path: Path, random_models: Models) -> None:
    """Every broken directory and setting, vocabularies that hold nothing, and what is no section or configuration."""
    target, good, _ = random_models
    layer = make_fastmtp(tmp_path / "layer", target)
    (tmp_path / "empty.json").write_text("[]")
    cases: list[tuple[list[str], str]] = []
    for number, case in enumerate(BROKEN):
        folder = tmp_path / str(number)
        settings = broken_copy(case, good, folder)
        cases.append(([*speculative_config(folder, settings.pop("num_speculative_tokens"), **settings)], case.sentence))
    drafting = [*speculative_config(layer, 3)]
    for section, sentence in (
        ({"vocabulary": str(tmp_path / "empty.json")}, "empty.json is wrong"),
        ({"vocabulary": str(tmp_path / "nowhere.json")}, "nowhere.json is missing"),
        ({"size": 10**30, "vocabulary": "x"}, "'mtpc.size'"),
        ({"copy": "yes"}, "'mtpc.copy'"),
        ({"colour": 5}, "unknown key 'colour'"),
    ):
        cases.append(([*drafting, "--additional-config", json.dumps({"mtpc": section})], sentence))
    cases.append(([*drafting, "--additional-config", "[1]"], "additional-config"))
    cases.append((["--speculative-config", "[1]"], "speculative-config must be a JSON object"))
    cases.append(([*speculative_config(layer, 10**9)], "must be a whole number from 1 to 256"))
    assert len(cases) >= 25
    commands = [["serve", str(target), *ARGUMENTS, *arguments] for arguments, _ in cases]
    for (arguments, sentence), found in zip(cases, starts(CLI, commands, ENVIRONMENT), strict=True):
        last = found.errors.splitlines()[-1] if found.errors else ""
        assert found.code == 1, (arguments, found.errors[-2000:])
        assert last.startswith("mtpc: ") and sentence in last, (arguments, last)
        assert "Traceback" not in found.errors, arguments
        assert not found.survivors, arguments
