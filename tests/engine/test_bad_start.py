"""`vllm serve` with a broken drafter: one sentence at the end, no stack trace, no process left."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.engine.conftest import Models
from tests.engine.server import ENVIRONMENT, command, processes_of_group, speculative_config
from tests.support.broken_drafters import BROKEN, Broken, broken_copy

pytestmark = pytest.mark.engine
# Every case goes through vLLM's configuration in tests/vllm_mtpc/test_window_settings.py; these also through a server.
NAMES = ("another vocabulary", "too many drafts")


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
    cases = [case for case in BROKEN if case.name in NAMES]
    assert len(cases) == len(NAMES)
    target, good, _ = random_models  # a window of 8
    with ThreadPoolExecutor(2) as pool:
        attempts = pool.map(lambda case: serve(target, good, case, tmp_path / case.name.replace(" ", "-")), cases)
        for case, (code, errors, survivors) in zip(cases, attempts, strict=True):
            last = errors.splitlines()[-1]
            assert code == 1, case.name
            assert last.startswith("mtpc: "), case.name
            assert case.sentence in last
            assert "Traceback" not in errors, case.name
            assert not survivors, case.name
