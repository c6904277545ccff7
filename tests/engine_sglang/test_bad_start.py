"""`sglang.launch_server` with a broken drafter: one sentence at the end, no stack trace, no process left."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.engine.conftest import Models
from tests.engine.server import processes_of_group
from tests.engine_sglang.server import ENVIRONMENT, command, drafting, environment
from tests.support.broken_drafters import BROKEN, broken_copy
from tests.support.broken_settings import SGLANG_SETTINGS
from tests.support.random_fastmtp import make_fastmtp
from tests.support.starts import starts

pytestmark = pytest.mark.engine
# Every case goes through a server; this one through one of a process of its own.
FOLDER = "another vocabulary"
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
    """A drafter, and an error while registering."""
    target, good, _ = random_models  # a window of 8
    (case,) = (case for case in BROKEN if case.name == FOLDER)
    broken_copy(case, good, tmp_path / "broken")
    named = ("--speculative-algorithm", "MTPC", "--speculative-draft-model-path", str(tmp_path / "broken"))
    attempts = [
        (named, case.sentence, []),
        (
            drafting(good),
            "MTPC could not be registered with SGLang: OSError: no room.",
            [SUPPORT / "failing_registration"],
        ),
    ]
    with ThreadPoolExecutor(2) as pool:
        for result in [pool.submit(refused, target, *attempt) for attempt in attempts]:
            result.result()


@pytest.mark.thorough
def test_an_sglang_of_another_version(random_models: Models) -> None:
    arguments, sentence = drafting(random_models.drafter), "is expected; install an SGLang version"
    refused(random_models.target, arguments, sentence, [SUPPORT / "changed_sglang"])


@pytest.mark.thorough
def test_whatever_is_wrong_is_one_sentence(tmp_path: Path, random_models: Models) -> None:
    """Every broken directory and setting, and vocabularies that hold nothing or are no token map."""
    target, good, _ = random_models
    layer = make_fastmtp(tmp_path / "layer", target)
    (tmp_path / "empty.json").write_text("[]")
    cases: list[tuple[Sequence[str], str]] = []
    named = ("--speculative-algorithm", "MTPC", "--speculative-draft-model-path")
    for number, case in enumerate(case for case in BROKEN if case.folder is not None):
        broken_copy(case, good, tmp_path / str(number))
        cases.append(((*named, str(tmp_path / str(number))), case.sentence))
    cases += [(drafting(good, *arguments), sentence) for arguments, sentence in SGLANG_SETTINGS.values()]
    for token_map, sentence in (
        (tmp_path / "empty.json", "empty.json is wrong"),
        (tmp_path / "nowhere.json", "nowhere.json is missing"),
        ("?colour=red", "unknown key 'colour'"),
        ("?copy=yes", "'copy'"),
    ):
        cases.append((drafting(layer, "--speculative-token-map", str(token_map)), sentence))
    assert len(cases) >= 25
    commands = [command(target, *arguments)[3:] for arguments, _ in cases]
    for (arguments, sentence), found in zip(cases, starts("sglang.launch_server", commands, ENVIRONMENT), strict=True):
        last = found.errors.splitlines()[-1] if found.errors else ""
        assert found.code == 1, (arguments, found.errors[-2000:])
        assert last.startswith("mtpc: ") and sentence in last, (arguments, last)
        assert "Traceback" not in found.errors, arguments
        assert not found.survivors, arguments
