"""`sglang.launch_server` with a broken drafter: one sentence at the end, no stack trace, no process left."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.engine.conftest import Models
from tests.engine.server import processes_of_group
from tests.engine_sglang.server import command, drafting, environment
from tests.support.broken_drafters import BROKEN, broken_copy
from tests.support.broken_settings import SGLANG_SETTINGS

pytestmark = pytest.mark.engine
# Every case goes through SGLang's arguments in tests/sglang_mtpc/test_window_settings.py; these also through a server.
FOLDERS = ("another vocabulary", "NaN")
SETTINGS = ("too many drafts", "a tree that does not fit")
SUPPORT = Path(__file__).parents[1] / "support"


def refused(target: Path, arguments: Sequence[str], sentence: str, path: Sequence[Path] = ()) -> None:
    """Starting with these arguments ends in one sentence with this part, and leaves nothing behind."""
    process = subprocess.Popen(
        command(target, *arguments),
        env=environment(path),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    _, errors = process.communicate(timeout=900)
    survivors = list(processes_of_group(process.pid))
    last = errors.splitlines()[-1]
    assert process.returncode == 1, sentence
    assert last.startswith("mtpc: "), last
    assert sentence in last
    assert "Traceback" not in errors, sentence
    assert not survivors, sentence


def test_one_sentence_and_no_process(tmp_path: Path, random_models: Models) -> None:
    target, good, _ = random_models  # a window of 8
    attempts = []
    for case in BROKEN:
        if case.name in FOLDERS:
            folder = tmp_path / case.name.replace(" ", "-")
            broken_copy(case, good, folder)
            named = ("--speculative-algorithm", "MTPC", "--speculative-draft-model-path", str(folder))
            attempts.append((named, case.sentence))
    for name in SETTINGS:
        arguments, sentence = SGLANG_SETTINGS[name]
        attempts.append((drafting(good, *arguments), sentence))
    assert len(attempts) == len(FOLDERS) + len(SETTINGS)
    with ThreadPoolExecutor(2) as pool:
        for result in [pool.submit(refused, target, *attempt) for attempt in attempts]:
            result.result()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("changed_sglang", "is expected; install an SGLang version"),
        ("failing_registration", "MTPC could not be registered with SGLang: OSError: no room."),
    ],
)
def test_what_goes_wrong_in_registering_reaches_the_user(random_models: Models, name: str, sentence: str) -> None:
    refused(random_models.target, drafting(random_models.drafter), sentence, [SUPPORT / name])
