"""Model Runner V2 on a CPU, through Triton's interpreter: same greedy text, same distribution."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mtpc.vocabulary.settings import open_vocabularies
from tests.engine.conftest import Models
from tests.engine.exact import Reference, Sampling, cells, p_value
from tests.engine.fastmtp import Loop
from tests.engine.prompts import prompts
from tests.statistics import REJECT_BELOW
from tests.support.random_fastmtp import make_fastmtp, make_vocabulary
from tests.support.random_mimo import make_mimo

pytestmark = pytest.mark.engine
ROOT = Path(__file__).parents[2]
SAMPLES = 600
SAMPLING = Sampling(temperature=0.5)  # few likely windows, so that 600 samples tell much
ENVIRONMENT = {
    "TRITON_INTERPRET": "1",
    "VLLM_USE_V2_MODEL_RUNNER": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join(
        [str(ROOT), str(ROOT / "tests" / "support" / "v2_on_cpu"), *filter(None, [os.environ.get("PYTHONPATH")])]
    ),
}
SAMPLED = ("--samples", str(SAMPLES), "--temperature", str(SAMPLING.temperature))
FEWER = 300  # where drafting takes as many passes of the interpreter as there are drafts
PROMPTS = [list(prompt.encode())[:20] for prompt in prompts(6)]


def session(models: Models, prompts: list[list[int]], *arguments: str) -> dict[str, Any]:
    """What `v2_session.py` prints."""
    pytest.importorskip("triton", reason="needs Triton's interpreter")
    names = [str(models.target), str(models.drafter), json.dumps(prompts), "--drafts", str(models.drafts)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.v2_session", *names, *arguments],
        env=os.environ | ENVIRONMENT,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def test_greedy_text_and_joint_of_the_first_tokens(random_models: Models, tiny_reference: Reference) -> None:
    said = session(random_models, PROMPTS, "--greedy-length", "40", *SAMPLED)
    assert said["greedy"] == [tiny_reference.greedy(prompt, 40) for prompt in PROMPTS]
    assert 0 < said["accepted"] < said["drafted"]
    expected = cells(tiny_reference, PROMPTS[0], SAMPLING, SAMPLES)
    assert p_value([tuple(window) for window in said["samples"]], expected) > REJECT_BELOW


def test_a_misstated_draft_distribution_fails(random_models: Models, tiny_reference: Reference) -> None:
    arguments = ("--greedy-length", "1", *SAMPLED, "--misstate")
    said = session(random_models, PROMPTS[:1], *arguments)
    expected = cells(tiny_reference, PROMPTS[0], SAMPLING, SAMPLES)
    assert p_value([tuple(window) for window in said["samples"]], expected) < REJECT_BELOW


@pytest.mark.parametrize("drafts", ["probabilistic", "greedy"])
def test_replayed_drafts(random_models: Models, tiny_reference: Reference, drafts: str) -> None:
    said = session(random_models, PROMPTS[:3], "--greedy-length", "24", "--replay", "--draft-sample-method", drafts)
    assert said["greedy"] == [tiny_reference.greedy(prompt, 24) for prompt in PROMPTS[:3]]
    assert said["replays"] > 5
    assert said["padded"] > 5  # three requests in a graph of four


def test_the_drafter_that_ships(models: Models, reference: Reference) -> None:
    said = session(models, PROMPTS[:4], "--greedy-length", "32")
    assert said["greedy"] == [reference.greedy(prompt, 32) for prompt in PROMPTS[:4]]
    assert said["accepted"] > 0


@pytest.fixture(scope="module")
def fastmtp(random_models: Models, tmp_path_factory: pytest.TempPathFactory) -> Models:
    """An untrained FastMTP drafter for the random target, with a draft vocabulary of its own."""
    folder = make_fastmtp(tmp_path_factory.mktemp("fastmtp") / "drafter", random_models.target)
    make_vocabulary(folder / "vocabulary.json", 258)
    return Models(random_models.target, folder, 3)


VOCABULARY = {"size": 120}
BY_LANGUAGE = ("--additional", json.dumps({"mtpc": VOCABULARY}))


def assert_recorded(file: Path, prompts: list[list[int]], loop: Loop, length: int, drafts: int) -> None:
    """The drafts in a file are those of the plain loop; the engine also drafts after the last token."""
    expected = Counter(tuple(draft) for prompt in prompts for draft in loop.drafts(prompt, length, drafts))
    found = Counter(tuple(draft) for line in file.read_text().splitlines() for draft in json.loads(line))
    assert expected <= found
    assert found.total() - expected.total() <= 2 * len(prompts)


def test_fastmtp_by_language(fastmtp: Models, tiny_reference: Reference, tmp_path: Path) -> None:
    file, length = tmp_path / "drafts", 24
    recorded = ("--record", str(file), "--greedy-length", str(length))
    said = session(fastmtp, PROMPTS, *BY_LANGUAGE, *recorded)
    assert said["greedy"] == [tiny_reference.greedy(prompt, length) for prompt in PROMPTS]
    assert 0 < said["accepted"] < said["drafted"]
    loop = Loop(fastmtp.target, fastmtp.drafter, open_vocabularies(VOCABULARY, fastmtp.drafter, 258))
    assert_recorded(file, PROMPTS, loop, length, fastmtp.drafts)


@pytest.mark.parametrize("misstate", [False, True])
def test_fastmtp_joint_of_the_first_tokens(fastmtp: Models, tiny_reference: Reference, misstate: bool) -> None:
    sampled = ("--samples", str(FEWER), "--temperature", str(SAMPLING.temperature))
    arguments = ("--greedy-length", "1", *sampled, *BY_LANGUAGE, *(["--misstate"] if misstate else []))
    said = session(fastmtp, PROMPTS[:1], *arguments)
    expected = cells(tiny_reference, PROMPTS[0], SAMPLING, FEWER)
    assert len(expected) > 10
    assert (p_value([tuple(window) for window in said["samples"]], expected) < REJECT_BELOW) == misstate


def test_fastmtp_on_a_mimo_target(tmp_path: Path) -> None:
    mimo, file, length, asked = make_mimo(tmp_path), tmp_path / "drafts", 12, PROMPTS[:3]
    models = Models(mimo.target, mimo.drafter, 3)
    said = session(models, asked, "--greedy-length", str(length), "--record", str(file))
    exact = Reference(mimo.plain)
    assert said["greedy"] == [exact.greedy(prompt, length) for prompt in asked]
    assert_recorded(file, asked, Loop(mimo.plain, mimo.drafter), length, models.drafts)
