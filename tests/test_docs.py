"""The pages are true: links lead somewhere, commands parse, examples are the files that are tested."""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from mtpc.lab.cli.main import app
from mtpc.metrics.exporter import METRICS

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "weights" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ROOMS = ("benchmarks", "docker", "docs", "plugins", "requirements", "scripts", "serve_configs", "tests", "weights")


def text_of(page: Path) -> str:
    """Without code blocks."""
    return BLOCK.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pages
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        if link.startswith(("http://", "https://")):
            continue
        name, _, anchor = link.partition("#")
        linked = (page.parent / name).resolve() if name else page
        assert linked.exists(), link
        if anchor:
            assert anchor in anchors(linked), link


@pages
def test_paths_exist(page: Path) -> None:
    for quoted in re.findall(r"`([\w./*-]+/[\w./*-]*)`", text_of(page)):
        if quoted.split("/")[0] in ROOMS:
            assert list(ROOT.glob(quoted.rstrip("/"))), quoted


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


def command_lines(page: Path) -> list[list[str]]:
    """The words of every `mtpc` command in the page's code blocks."""
    lines = []
    for language, block in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "":
            whole = re.sub(r"\\\n\s*", " ", block)
            lines += [shlex.split(line, comments=True)[1:] for line in whole.splitlines() if line.startswith("mtpc ")]
    return lines


@pages
def test_commands_parse(page: Path) -> None:
    for words in command_lines(page):
        named, count = command(tuple(word for word in words if not word.startswith("-"))[:2])
        assert count, words
        options = {option for parameter in named.params for option in (*parameter.opts, *parameter.secondary_opts)}
        for word in words:
            if word.startswith("--"):
                assert word.partition("=")[0] in options, (words, word)


def test_the_example_is_the_family_that_is_served() -> None:
    (block,) = (
        code for kind, code in BLOCK.findall((ROOT / "docs" / "add-a-drafter.md").read_text()) if kind == "python"
    )
    assert block == (ROOT / "tests" / "support" / "hybrid" / "hybrid.py").read_text()


def quoted_in(page: str, after: str = "") -> list[str]:
    """What the first column of the page's tables quotes; after: only below this heading."""
    text = (ROOT / "docs" / page).read_text().partition(after)[2] if after else (ROOT / "docs" / page).read_text()
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


def test_sentences_are_those_of_the_code() -> None:
    source = "\n".join(file.read_text() for file in (ROOT / "plugins").rglob("*.py"))
    source = re.sub(r'"\s*\n\s*f?"', "", source)  # a sentence may be written over several lines
    quoted = quoted_in("when-something-is-wrong.md") + quoted_in("running-it.md", "## What the log says")
    assert len(quoted) > 5
    for sentence in quoted:
        assert re.sub(r"'[^']*'", "{", sentence).split("{")[0] in source, sentence


def test_metrics_and_alerts_are_those_that_there_are() -> None:
    named = set(quoted_in("running-it.md")) - set(quoted_in("running-it.md", "## What the log says"))
    alerts = re.findall(r"alert: (\w+)", (ROOT / "serve_configs" / "prometheus" / "alerts.yml").read_text())
    assert named == {*alerts, *(f"{name}_total" for name in METRICS)}


@cache
def names_in(file: Path) -> set[str]:
    """The names of a module's tests."""
    return {node.name for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)}


@pages
def test_tests_that_are_named_exist(page: Path) -> None:
    for name, test, case in re.findall(r"`(tests/[\w/]+\.py)::(\w+)(?:\[([^\]]+)\])?`", text_of(page)):
        assert test in names_in(ROOT / name), f"{name}::{test}"
        assert f'"{case}"' in (ROOT / name).read_text() or not case, f"{name}::{test}[{case}]"
