"""What an engine's process refuses is one sentence at the end of what the first process writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import multiprocessing, sys
from mtpc.errors import MTPCError, await_child_message, exits_with_message


@exits_with_message
def work(what):
    if what == "refused":
        raise MTPCError("the head is not plain.")
    raise RuntimeError("broken")


@exits_with_message
def engine(what):
    worker = multiprocessing.get_context("spawn").Process(target=work, args=[what])
    worker.start()
    worker.join()
    raise RuntimeError("the worker is gone")


if __name__ == "__main__":
    await_child_message()
    process = multiprocessing.get_context("spawn").Process(target=engine, args=sys.argv[1:])
    process.start()
    process.join()
    raise RuntimeError(f"the engine is gone: {process.exitcode}")
"""


IN_PROCESS = """
from mtpc.errors import MTPCError, await_child_message, exits_with_message


@exits_with_message
def engine():
    raise MTPCError("the head is not plain.")


await_child_message()
try:
    engine()
except MTPCError as error:
    print("caught:", error)
engine()
"""


def test_an_engine_in_the_first_process_raises_an_exception(tmp_path: Path) -> None:
    """A user's program can catch it; otherwise it ends with one sentence."""
    (tmp_path / "program.py").write_text(IN_PROCESS)
    done = subprocess.run([sys.executable, str(tmp_path / "program.py")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "caught: the head is not plain.\n")
    assert done.stderr == "mtpc: the head is not plain.\n"


@pytest.mark.parametrize("what", ["refused", "broken"])
def test_the_last_line(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    done = subprocess.run([sys.executable, str(file), what], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    if what == "refused":
        assert done.stderr.splitlines() == ["mtpc: the head is not plain."] * 2  # by the process, and at the end
    else:
        assert done.stderr.endswith("RuntimeError: the engine is gone: 1\n")
        assert done.stderr.count("Traceback") == 3
    assert list(tmp_path.iterdir()) == [file]
