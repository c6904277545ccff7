"""The files of `examples/`: programs as modules, the commands of scripts without running them, a check of these."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import typer

from mtpc.lab.cli.main import app

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = ("mtpc", "python", "vllm")
RECORDER = """#!/usr/bin/env bash
printf '%s\\0' "${0##*/}" "$@" $'\\n' >>"$RECORDED"
"""


def load(program: str) -> ModuleType:
    """A Python example, as a module."""
    spec = spec_from_file_location(program.removesuffix(".py"), EXAMPLES / program)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def recorded(script: str, *arguments: str) -> list[list[str]]:
    """Run an example with programs that only note their names and arguments.

    Returns:
        The words of each command, in order.
    """
    with TemporaryDirectory() as folder:
        notes = Path(folder) / "notes"
        for program in PROGRAMS:
            file = Path(folder) / program
            file.write_text(RECORDER)
            file.chmod(0o755)
        environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "RECORDED": str(notes)}
        subprocess.run([EXAMPLES / script, *arguments], env=environment, check=True, timeout=300)
        return [words.strip("\0").split("\0") for words in notes.read_text().split("\0\n\0") if words]


@cache
def command(words: tuple[str, ...]) -> tuple[Any, int]:
    """The command that words of a command line name, and how many of them do."""
    named: Any = typer.main.get_command(app)
    for count, word in enumerate(words):
        below = named.get_command(None, word) if hasattr(named, "get_command") else None
        if below is None:
            return named, count
        named = below
    return named, len(words)


def check_options(words: list[str]) -> None:
    """Check that the words after `mtpc` name a command, and options that it has."""
    named, count = command(tuple(word for word in words if not word.startswith("-"))[:2])
    assert count, words
    options = {option for parameter in named.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for word in words:
        if word.startswith("--"):
            assert word.partition("=")[0] in options, (words, word)
