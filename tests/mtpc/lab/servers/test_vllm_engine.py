"""How vLLM is started, and its counters."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mtpc.lab.servers.draft_counters import DraftCounters
from mtpc.lab.servers.engine import ServerSettings
from mtpc.lab.servers.ngram import Ngram
from mtpc.lab.servers.prometheus import parse
from mtpc.lab.servers.speculation import V1_ARGUMENTS
from mtpc.lab.servers.vllm_engine import vllm_command, vllm_counters, vllm_environment, vllm_offline_environment
from tests.mtpc.lab.servers.test_prometheus import PAGE
from tests.support.random_models import make_drafter, make_target
from tests.support.random_pair import make_pair

WEIGHTS = Path(__file__).parents[4] / "weights"
SETTINGS = ServerSettings(Path("target"), max_batch=4, max_length=512)


def test_the_two_command_lines_differ_only_in_the_drafter(tmp_path: Path) -> None:
    """A drafter with a text part needs the V1 runner as well, which vLLM takes by default on a CPU only."""
    plain = vllm_command(SETTINGS, 1)
    target = make_target(tmp_path / "target")
    pair = make_pair(tmp_path / "pair", WEIGHTS / "byte-target", "slem")
    drafters = {make_drafter(tmp_path / "mtpc", target): [], pair: V1_ARGUMENTS}
    for drafter, more in drafters.items():
        settings = replace(SETTINGS, drafter=drafter, num_drafts=7)
        drafted = vllm_command(settings, 1)
        assert drafted[: len(plain)] == plain
        assert drafted[len(plain)] == "--speculative-config"
        assert '"num_speculative_tokens":7' in drafted[len(plain) + 1]
        assert drafted[len(plain) + 2 :] == more
        for environment in (vllm_environment(settings), vllm_offline_environment(settings)):
            assert ("VLLM_USE_V2_MODEL_RUNNER" in environment) is bool(more)


def test_the_engines_own_ngram_drafter() -> None:
    flag, values = vllm_command(replace(SETTINGS, ngram=Ngram.parse("2-4:5")), 1)[-2:]
    assert flag == "--speculative-config"
    expected = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 2, "prompt_lookup_max": 4}
    assert json.loads(values) == expected


@pytest.mark.parametrize("compiler", [True, False])
def test_without_a_compiler_nothing_is_compiled(compiler: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}" if compiler and name == "g++" else None)
    assert ("--enforce-eager" in vllm_command(SETTINGS, 1)) is not compiler


def test_intels_openmp_goes_first_where_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("LD_PRELOAD", "/lib/other.so")
    assert "LD_PRELOAD" not in vllm_environment(SETTINGS)
    openmp = tmp_path / "lib" / "libiomp5.so"
    openmp.parent.mkdir()
    openmp.touch()
    assert vllm_environment(SETTINGS)["LD_PRELOAD"] == f"{openmp}:/lib/other.so"


def test_vllm_counters_come_in_the_order_of_positions() -> None:
    assert vllm_counters(parse(PAGE)) == DraftCounters(25, 75, 30, (20, 7, 3))


def test_a_server_without_a_drafter_counts_nothing() -> None:
    assert vllm_counters(parse("up 1")) == DraftCounters(0, 0, 0, ())
