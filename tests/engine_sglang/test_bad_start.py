"""`sglang.launch_server` with a broken drafter: one sentence at the end, no stack trace, no process left."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.engine.conftest import Models
from tests.engine.server import processes_of_group
from tests.engine_sglang.server import ENVIRONMENT, command, drafting
from tests.support.broken_drafters import BROKEN, broken_copy

pytestmark = pytest.mark.engine
# Every case goes through SGLang's arguments in tests/sglang_mtpc/test_bad_input.py; these also through a server.
NAMES = ("no config.json", "another vocabulary", "NaN")
TOO_MANY = ("--speculative-num-steps", "8")


def serve(target: Path, arguments: tuple[str, ...]) -> tuple[int, str, list[int]]:
    """Exit code, standard error and surviving processes of one attempt."""
    process = subprocess.Popen(
        command(target, *arguments),
        env=os.environ | ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    _, errors = process.communicate(timeout=300)
    return process.returncode, errors, list(processes_of_group(process.pid))


def test_one_sentence_and_no_process(tmp_path: Path, random_models: Models) -> None:
    target, good, _ = random_models  # a window of 8
    attempts = {TOO_MANY: "a window of 8 tokens"}
    for case in BROKEN:
        if case.name in NAMES:
            folder = tmp_path / case.name.replace(" ", "-")
            broken_copy(case, good, folder)
            attempts[drafting(folder)] = case.sentence
    assert len(attempts) == len(NAMES) + 1
    with ThreadPoolExecutor(2) as pool:
        results = pool.map(lambda more: serve(target, more if more != TOO_MANY else drafting(good, *more)), attempts)
        for sentence, (code, errors, survivors) in zip(attempts.values(), results, strict=True):
            last = errors.splitlines()[-1]
            assert code == 1, sentence
            assert last.startswith("mtpc: ")
            assert sentence in last
            assert "Traceback" not in errors, sentence
            assert not survivors, sentence
