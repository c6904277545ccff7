"""The pages are true: links lead somewhere, commands parse, examples are the files that are tested."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from mtpc.metrics.exporter import INFO, METRICS
from scripts import check_words
from scripts.site_hook import COPIED, adapted
from tests.support.example_commands import check_options, command

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
pages = pytest.mark.parametrize("page", check_words.PAGES, ids=lambda page: str(page.relative_to(ROOT)))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ROOMS = (
    ".github",
    "benchmarks",
    "docker",
    "docs",
    "examples",
    "plugins",
    "requirements",
    "scripts",
    "serve_configs",
    "tests",
    "weights",
)


def reference(name: str) -> str:
    """A page of the reference."""
    return (DOCS / "reference" / f"{name}.md").read_text(encoding="utf-8")


def test_pages_that_are_written_from_the_code_are_current(tmp_path: Path) -> None:
    """As a new process writes them: other tests register draft methods of their own."""
    script = ROOT / "scripts" / "reference_pages.py"
    subprocess.run([sys.executable, script, tmp_path], check=True)
    for page in tmp_path.rglob("*.md"):
        current = (DOCS / page.relative_to(tmp_path)).read_text(encoding="utf-8")
        assert page.read_text(encoding="utf-8") == current, "run make reference"


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


def command_lines(text: str) -> list[list[str]]:
    """The words of every `mtpc` command in the code blocks of a page."""
    lines = []
    for language, block in BLOCK.findall(text):
        if language == "":
            whole = re.sub(r"\\\n\s*", " ", block)
            lines += [shlex.split(line, comments=True)[1:] for line in whole.splitlines() if line.startswith("mtpc ")]
    return lines


def check_commands(text: str) -> int:
    """Commands and options exist; returns the number of commands."""
    lines = command_lines(text)
    for words in lines:
        check_options(words)
    return len(lines)


@pages
def test_commands_parse(page: Path) -> None:
    check_commands(page.read_text(encoding="utf-8"))


def test_examples_of_the_help_parse_and_can_be_pasted() -> None:
    """A terminal of 80 columns wraps no line: a pasted command would break where it does."""
    text = reference("cli")
    assert check_commands(text) > 35
    assert not [line for _, block in BLOCK.findall(text) for line in block.splitlines() if len(line) > 76]


def test_the_example_is_the_family_that_is_served() -> None:
    (block,) = (
        code for kind, code in BLOCK.findall((DOCS / "developer" / "add-a-method.md").read_text()) if kind == "python"
    )
    assert block == (ROOT / "tests" / "support" / "hybrid" / "hybrid.py").read_text()


def quoted_in(page: str, after: str = "") -> list[str]:
    """What the first column of the page's tables quotes; after: only below this heading."""
    text = (DOCS / "guides" / page).read_text()
    text = text.partition(after)[2] if after else text
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


def test_sentences_are_those_of_the_code() -> None:
    source = "\n".join(file.read_text() for file in (ROOT / "plugins").rglob("*.py"))
    source = re.sub(r'"\s*\n\s*f?"', "", source)  # a sentence may be written over several lines
    quoted = quoted_in("troubleshooting.md", "## Error messages") + quoted_in("monitor.md", "## Log lines")
    quoted = [sentence for sentence in quoted if sentence != "draft_sample_method"]  # of the table of checks
    assert len(quoted) > 15
    for sentence in quoted:
        assert re.sub(r"'[^']*'", "{", sentence).split("{")[0] in source, sentence


def test_every_benchmark_is_listed() -> None:
    runnable = [file for file in (ROOT / "benchmarks").rglob("*.py") if '__name__ == "__main__"' in file.read_text()]
    names = {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__") for file in runnable}
    assert sorted(quoted_in("benchmark.md", "## All benchmarks")) == sorted(names)


def test_metrics_and_alerts_are_those_that_there_are() -> None:
    named = set(quoted_in("monitor.md")) - set(quoted_in("monitor.md", "## Log lines"))
    alerts = re.findall(r"alert: (\w+)", (ROOT / "serve_configs" / "prometheus" / "alerts.yml").read_text())
    metrics = {INFO, *(f"{name}_total" for name in METRICS)}
    assert named == metrics.union(alerts)
    for name in metrics:
        assert f"`{name}`" in reference("metrics")


@cache
def names_in(file: Path) -> set[str]:
    """The names of a module's tests."""
    return {node.name for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)}


@pages
def test_tests_that_are_named_exist(page: Path) -> None:
    for name, test, case in re.findall(r"`(tests/[\w/]+\.py)::(\w+)(?:\[([^\]]+)\])?`", text_of(page)):
        assert test in names_in(ROOT / name), f"{name}::{test}"
        assert f'"{case}"' in (ROOT / name).read_text() or not case, f"{name}::{test}[{case}]"


@pages
def test_words_are_the_fields_and_sentences_short(page: Path) -> None:
    assert list(check_words.problems(page.read_text(encoding="utf-8"))) == []


def test_private_words_and_long_sentences_are_found() -> None:
    short, long = "The drafter proposes tokens.", " ".join(["A sentence"] * 16) + "."
    for text in ("What the server says.", "| a | No draft pays. |", f"- {short} {long}", f"```\ncode\n```\n{long}"):
        assert len(list(check_words.problems(text))) == 1, text
    assert not list(check_words.problems(f"{short}\n```\nIt says {long}\n```\n`says` [link](says.md) {short}"))


def test_docstrings_and_comments_are_read_without_code(tmp_path: Path) -> None:
    file, long = tmp_path / "module.py", " ".join(["words"] * 31)
    file.write_text(f'''"""What it says.

    python -m says

Text.
"""
SAID = "says"  # `says`


def run(said: str) -> None:
    """Run a command.

    Args:
        said: A text.
        other: {long}.
    """
    # It {" ".join(["words"] * 20)}
    # {" ".join(["words"] * 20)}.
    return  # it pays
''')
    found = [(problem.split(":")[1], problem.split(": ")[1]) for problem in check_words.problems_of(file)]
    assert found == [
        ("1", "'says' (generates, states, logs)"),
        ("11", "31 words"),
        ("18", "41 words"),
        ("19", "'pays' (gives a speedup, is worth it)"),
    ]


def test_comments_of_configurations_are_read(tmp_path: Path) -> None:
    file = tmp_path / "chat.yaml"
    file.write_text("# vllm serve says\n# What it\n# said.\nsaid: 1  # it pays\n")
    assert [problem.split(": ")[2] for problem in check_words.problems_of(file)] == [
        "vllm serve says",
        "What it said.",
        "it pays",
    ]


def test_readme_is_short_and_names_no_test() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 150
    assert not [line for line in lines if "tests/" in line]
    first = "\n".join(lines[:60])
    assert "make demo" in first
    assert "make test" in first


def test_every_command_and_setting_has_its_row() -> None:
    commands = reference("cli")
    for words in {tuple(words[:2]) for page in check_words.PAGES for words in command_lines(page.read_text())}:
        named, count = command(tuple(word for word in words if not word.startswith("-")))
        section = commands.partition(f"## mtpc {' '.join(words[:count])}\n")[2].partition("\n## ")[0]
        for parameter in named.params:
            if parameter.param_type_name == "option":
                assert f"`{parameter.opts[0]}`" in section, (words, parameter.opts)
    for page, keys in (("vllm", "copy adaptive step_cost store"), ("sglang", "copy adaptive step_cost borrow")):
        text = reference(page)
        for key in ["vocabulary", "size", "language", "plain", "verifying", *keys.split()]:
            row = re.search(rf"^\| `{key}` \|.*\| (.*) \|$", text, re.MULTILINE)
            assert row, key
            assert row[1], key


def test_the_api_page_names_what_exists() -> None:
    text = (DOCS / "reference" / "api.md").read_text()
    named = re.findall(r"^::: (\S+)\n(?:    options:\n      members: \[(.*)\])?", text, re.MULTILINE)
    assert named
    for module, members in named:
        for member in filter(None, members.split(", ")):
            assert hasattr(importlib.import_module(module), member), f"{module}.{member}"


def test_navigation_has_every_page() -> None:
    named = set(re.findall(r"(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    assert named == {*(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")), *COPIED.values()}


def test_links_of_the_repository_are_links_of_the_site() -> None:
    for source, link, adapted_link in (
        ("docs/start/vllm.md", "../../examples/README.md", "../examples.md"),
        ("docs/start/vllm.md", "install.md#without-a-gpu", "install.md#without-a-gpu"),
        ("weights/README.md", "../docs/benchmarks/chat.md#a", "benchmarks/chat.md#a"),
        ("CONTRIBUTING.md", "docs/developer/testing.md", "testing.md"),
        ("docs/index.md", "https://example.org/a.md", "https://example.org/a.md"),
    ):
        assert adapted(f"[text]({link})", source) == f"[text]({adapted_link})"
