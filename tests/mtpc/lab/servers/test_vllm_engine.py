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
from mtpc.lab.servers.vllm_engine import vllm_command, vllm_counters, vllm_environment
from tests.mtpc.lab.servers.test_prometheus import PAGE

SETTINGS = ServerSettings(Path("target"), max_batch=4, max_length=512)


def test_the_two_command_lines_differ_only_in_the_drafter() -> None:
    plain = vllm_command(SETTINGS, 1)
    drafted = vllm_command(ServerSettings(Path("target"), 4, 512, Path("drafter"), 7), 1)
    assert drafted[: len(plain)] == plain
    assert drafted[len(plain)] == "--speculative-config"
    assert '"num_speculative_tokens":7' in drafted[-1]


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
    assert "LD_PRELOAD" not in vllm_environment()
    openmp = tmp_path / "lib" / "libiomp5.so"
    openmp.parent.mkdir()
    openmp.touch()
    assert vllm_environment()["LD_PRELOAD"] == f"{openmp}:/lib/other.so"


def test_vllm_counters_come_in_the_order_of_positions() -> None:
    assert vllm_counters(parse(PAGE)) == DraftCounters(25, 75, 30, (20, 7, 3))


def test_a_server_without_a_drafter_counts_nothing() -> None:
    assert vllm_counters(parse("up 1")) == DraftCounters(0, 0, 0, ())
