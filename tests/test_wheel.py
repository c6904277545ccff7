"""The wheel holds three packages, default prompts and one drafter, and serves both engines from a clean environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from configparser import ConfigParser
from email import message_from_string
from importlib.util import find_spec
from pathlib import Path

import pytest

import mtpc

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGES = ("mtpc", "sglang_mtpc", "vllm_mtpc")
REFUSED = """
import sys

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("matplotlib", "openai", "rich", "scipy", "typer"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refused())
"""
# The entry points that an engine's process loads, without the libraries of the command line.
BASE_ALONE = f"""{REFUSED}
from importlib.metadata import entry_points
groups = "vllm.general_plugins", "sglang.srt.plugins", "mtpc.adapters"
ours = [each for group in groups for each in entry_points(group=group) if "_mtpc" in each.value]
print(*sorted({{each.name for each in ours if each.load()}}))
"""
COMMAND_ALONE = f"""{REFUSED}
from mtpc.lab.cli.entry import main
sys.stderr = sys.stdout
try:
    main()
except SystemExit as end:
    print(end.code)
"""
# What a command reads where no prompts are named.
DEFAULT_PROMPTS = """
import inspect
from mtpc.lab.cli.{0} import {0}
from mtpc.lab.text.prompts import read_prompts
default = inspect.signature({0}).parameters["prompts"].default
print(default, len(read_prompts(default)))
"""
INFO = f"mtpc_plugins-{mtpc.__version__}.dist-info"


def run(*command: str | Path, **variables: str) -> str:
    """What a command prints, outside of the source tree."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
    done = subprocess.run(
        list(map(str, command)), env=environment, cwd="/", capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made of a copy, as making one leaves files behind."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "plugins", folder / "plugins", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    spec = find_spec("build")
    assert spec is not None
    assert spec.origin is not None
    found = str(Path(spec.origin).parents[1])
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", folder, PYTHONPATH=found)
    (made,) = (folder / "dist").iterdir()
    return made


def test_what_it_holds(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    modules = {
        str(file.relative_to(ROOT / "plugins")) for name in PACKAGES for file in (ROOT / "plugins" / name).rglob("*.py")
    }
    typed = {f"{name}/py.typed" for name in PACKAGES}
    drafter = {f"mtpc/lab/targets/smollm2-fastmtp/{file.name}" for file in (ROOT / "weights/smollm2-fastmtp").iterdir()}
    data = {*typed, *drafter, "mtpc/lab/text/prompts.jsonl"}
    assert {name for name in held if not name.startswith(INFO)} == {*modules, *data}
    assert f"{INFO}/licenses/LICENSE" in held


def test_what_it_says(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    metadata = message_from_string(archive.read(f"{INFO}/METADATA").decode())
    assert metadata["Version"] == mtpc.__version__
    assert metadata["License-Expression"] == PROJECT["license"]
    assert metadata["Requires-Python"] == PROJECT["requires-python"]
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_all("Classifier") == PROJECT["classifiers"]
    required = metadata.get_all("Requires-Dist")
    base = {re.split(r"[>=<;\[ ]", needed)[0] for needed in required if "extra ==" not in needed}
    assert base == {"huggingface_hub", "numpy", "pydantic", "safetensors", "torch"}
    entries = ConfigParser(delimiters="=")
    entries.read_string(archive.read(f"{INFO}/entry_points.txt").decode())
    declared = PROJECT["entry-points"] | {"console_scripts": PROJECT["scripts"]}
    assert {group: dict(entries[group]) for group in entries.sections()} == declared


@pytest.mark.thorough
def test_it_is_all_that_a_clean_environment_needs_besides_an_engine(wheel: Path, tmp_path: Path) -> None:
    """What it needs of others comes from the environment of these tests, in which the project itself is not seen."""
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path)
    python = tmp_path / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel)
    script = "import mtpc, vllm_mtpc, sglang_mtpc\nfrom mtpc.lab.cli.main import app\nprint(mtpc.__file__)"
    others = sysconfig.get_path("purelib")
    assert run(python, "-c", script, PYTHONPATH=others).startswith(str(tmp_path))
    for command in ("bench", "prove"):
        default, count = run(python, "-c", DEFAULT_PROMPTS.format(command), PYTHONPATH=others).split()
        assert Path(default).is_relative_to(tmp_path)
        assert count == "60"
    assert "serve" in run(tmp_path / "bin" / "mtpc", "--help", PYTHONPATH=others)
    assert run(python, "-c", BASE_ALONE, PYTHONPATH=others).split() == ["mtpc", "sglang", "vllm"]
    sentence = "mtpc: this command needs the package typer: in a checkout, pip install '.[cli]'.\n2\n"
    assert run(python, "-c", COMMAND_ALONE, PYTHONPATH=others) == sentence


def test_a_project_with_a_public_address_has_absolute_links_in_its_long_description() -> None:
    relative = re.findall(r"\]\((?!https?://)[^)]+\)", (ROOT / PROJECT["readme"]).read_text())
    assert not relative or "Repository" not in PROJECT["urls"], relative
