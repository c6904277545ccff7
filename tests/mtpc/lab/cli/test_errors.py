"""Errors of the command line: one sentence, exit code 2, no stack trace."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from mtpc.errors import MTPCError
from mtpc.lab.cli.group import errors_as_sentences
from mtpc.lab.cli.main import app


def run(*arguments: str) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspect", "nowhere"], "nowhere is not a directory"),
        (["target", "bytes", "--corpus", "nowhere"], "nowhere is not a corpus folder"),
        (["target", "smollm2", "out", "--package", "nowhere.gguf"], "nowhere.gguf is missing"),
        (["distill", "--target", "nowhere", "--out", "out"], "nowhere is not a model folder with a tokenizer"),
        (["train", "copying", "--target", "nowhere", "--out", "out"], "nowhere is not a model folder"),
        (["train", "fastmtp", "--target", "a", "--data", "nowhere", "--out", "b"], "nowhere holds no conversations"),
        (["train", "mtpc", "--target", "a", "--data", "d", "--updates", "9"], "--updates has no effect with --data"),
        (["train", "mtpc", "--target", "a", "--epochs", "2"], "--epochs has no effect without --data"),
        (["evaluate", "a", "--target", "b"], "one of --corpus, --data and --prompts"),
        (["evaluate", "a", "--target", "b", "--corpus", "c", "--data", "d"], "one of --corpus, --data and --prompts"),
        (["evaluate", "a", "--target", "t", "--corpus", "nowhere"], "nowhere is not a corpus folder"),
        (["evaluate", "a", "--target", "t", "--data", "nowhere"], "nowhere holds no conversations"),
        (["evaluate", "a", "--target", "t", "--prompts", "nowhere"], "the prompts nowhere cannot be read"),
        (["evaluate", "a", "--target", "b", "--tree", "7,x"], "'--tree': 'x' is not a whole number from 1 to 4096."),
        (["evaluate", "a", "--target", "b", "--temperatures", "x"], "'x' is not a number from 0.01 to 100.0 or 0."),
        (["evaluate", "a"], "Missing option '--target'."),
        (["nothing"], "No such command 'nothing'."),
        (["inspct"], "No such command 'inspct'. Did you mean 'inspect'?\n"),
        (["train", "medusa"], "There is no `mtpc train medusa`: use `mtpc convert medusa`.\n"),
        (["train", "pair", "--help"], "There is no `mtpc train pair`: use `mtpc convert pair`.\n"),
        (["convert", "copying"], "There is no `mtpc convert copying`: use `mtpc train copying`.\n"),
        (["train", "medus"], "No such command 'medus'."),
        (["--nothing"], "No such option: --nothing."),
        (["convert", "fastmtp", "nowhere", "out"], "config.json is missing"),
        (["bench"], "--target or --drafter is missing"),
        (["bench", "--url", "http://127.0.0.1:1"], "--url requires --baseline-url"),
        (["bench", "--baseline-url", "http://127.0.0.1:1"], "--baseline-url requires --url"),
        (["bench", "--url", "http://x", "--baseline-url", "http://y", "--drafter", "z"], "cannot be combined"),
        (["bench", "--url", "x", "--baseline-url", "y"], "'x' is not an address like http://127.0.0.1:8000."),
        (["bench", "--engine", "tgi"], "Invalid value for '--engine': 'tgi' is not one of 'vllm', 'sglang'."),
        (["bench", "--url", "http://127.0.0.1:1", "--baseline-url", "http://127.0.0.1:1"], "does not answer"),
        (["prove", "http://127.0.0.1:1", "--baseline-url", "http://127.0.0.1:1"], "does not answer"),
        (["bench", "--target", "a", "--drafter", "b", "--prompts", "nowhere"], "the prompts nowhere cannot be read"),
    ],
)
def test_one_sentence_and_exit_code_two(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t").mkdir()
    Path("t", "config.json").write_text("{}")
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.startswith("mtpc: ")
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", "a" * 400_000],
        ["inspect", "a/" * 3000],
        ["inspect", "a " * 3000],
        ["inspect", "two\nlines\r\nand\u2028more"],
        ["evaluate", "a", "--target", "b", "--tree", "x" * 6000],
        ["bench", "--url", "x" * 6000, "--baseline-url", "y"],
        ["bench", "--engine", "x" * 6000],
        ["train", "x" * 6000],
        ["y\n" * 6000],
        ["corpus", "a" * 6000],
    ],
    ids=range(10),
)
def test_long_names_and_lines_are_shortened(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 2, result.exception
    (sentence,) = result.stderr.splitlines()
    assert sentence.startswith("mtpc: ")
    assert len(sentence) < 1600


def test_a_sentence_is_one_line_wherever_it_is_shown() -> None:
    assert str(MTPCError("one\n  two\x85three")) == "one two three"
    long = str(MTPCError(f"{'a' * 400_000} is missing, but {'b' * 300} is there."))
    assert long.startswith("aaa") and long.endswith(f"... is missing, but {'b' * 300} is there.".replace("...", ""))
    assert "aaa...aaa" in long and len(long) < 700


def test_a_missing_package_names_its_extra(capsys: pytest.CaptureFixture[str]) -> None:
    for package, extra in (("scipy.stats", "cli"), ("openai", "cli"), ("transformers", "train")):
        with pytest.raises(typer.Exit) as caught, errors_as_sentences():
            raise ModuleNotFoundError("No module", name=package)
        assert caught.value.exit_code == 2
        name = package.partition(".")[0]
        expected = f"mtpc: this command needs the package {name}: in a checkout, pip install '.[{extra}]'.\n"
        assert capsys.readouterr().err == expected
    with pytest.raises(ModuleNotFoundError), errors_as_sentences():
        raise ModuleNotFoundError("No module", name="mtpc.nothing")


def test_the_installed_command_behaves_the_same(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mtpc.lab.cli.entry", "inspect", "nowhere"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("mtpc: nowhere is not a directory")


@pytest.mark.parametrize(
    ("line", "message"), [("{", "line 2"), ('{"prompt": "x"}', 'field "text"'), ('["x"]', 'field "text"')]
)
def test_prompts_are_checked_line_by_line(line: str, message: str, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(f'{{"text": "fine"}}\n{line}\n')
    result = run("bench", "--target", "a", "--drafter", "b", "--prompts", str(prompts))
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_file_without_prompts(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("\n")
    assert "holds no prompt" in run("bench", "--target", "a", "--drafter", "b", "--prompts", str(prompts)).stderr


@pytest.mark.parametrize(
    "command",
    [
        "corpus",
        "distill",
        "train",
        "evaluate",
        "convert",
        "vocab",
        "inspect",
        "bench",
        "doctor",
        "prove",
        "check-acceptance",
        "target",
    ],
)
def test_every_command_has_help(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert len(result.output) > 200


@pytest.mark.parametrize(
    "command",
    [
        ["evaluate", "a", "--prompts", "nowhere"],
        ["train", "mtpc", "--corpus", "nowhere"],
        ["train", "bytecircuit", "--data", "nowhere", "--out", "out"],
        ["train", "copying", "--out", "out"],
        ["convert", "pair", "nowhere", "--out", "out"],
        ["convert", "medusa", "nowhere", "--out", "out"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_a_target_is_checked_first_and_alike(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("drafter").mkdir()
    Path("drafter", "config.json").write_text('{"mtpc": {}}')
    absent, drafter = (run(*command, "--target", name).stderr for name in ("nosuch", "drafter"))
    assert absent == "mtpc: nosuch is not a model folder (no config.json).\n"
    assert drafter == "mtpc: drafter is an MTPC drafter, but a target was expected.\n"


def test_only_the_main_command_installs_completion() -> None:
    assert "--install-completion" in run("--help").output
    for command in (("train", "fastmtp"), ("convert", "pair"), ("train",), ("target", "smollm2")):
        assert "-completion" not in run(*command, "--help").output


@pytest.mark.parametrize(
    "command",
    [
        ["train", "copying", "--target", "nowhere"],
        ["train", "fastmtp", "--target", "nowhere", "--data", "nowhere"],
        ["train", "fastmtp", "--target", "nowhere", "--data", "nowhere", "--resume", "new.state"],
        ["train", "gumiho", "--target", "nowhere", "--data", "nowhere"],
        ["train", "bytecircuit", "--target", "nowhere", "--data", "nowhere"],
        ["train", "mtpc", "--target", "nowhere"],
        ["train", "mtpc", "--target", "nowhere", "--data", "nowhere", "--circuits", "ff", "--lora-layers", "1"],
        ["target", "bytes", "--corpus", "nowhere"],
        ["target", "bytes", "--corpus", "nowhere", "--resume", "new.state"],
        ["convert", "medusa", "nowhere", "--target", "nowhere"],
        ["convert", "pair", "nowhere", "--target", "nowhere"],
    ],
    ids=" ".join,
)
def test_no_model_is_overwritten(command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The output is checked before anything is read."""
    monkeypatch.chdir(tmp_path)
    names = {"gumiho": ["gumiho-ff"], "bytecircuit": ["bytecircuit-hmm"], "mtpc": ["mtpc-btree-n8", "mtpc-ff-n8-lora1"]}
    folders = [Path("out", name) for name in names.get(command[1], [""])]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_text("mine")
    result = run(*command, "--out", "out")
    assert result.exit_code == 2
    assert result.stderr in [f"mtpc: {each} already exists; name a folder that is new or empty.\n" for each in folders]
    assert all([*folder.iterdir()] == [folder / "model.safetensors"] for folder in folders)


@pytest.mark.parametrize(
    "command",
    [
        ["corpus"],
        ["distill"],
        ["train"],
        ["train", "mtpc"],
        ["train", "fastmtp"],
        ["evaluate"],
        ["convert"],
        ["convert", "fastmtp"],
        ["inspect"],
        ["bench"],
        ["doctor"],
        ["prove"],
        ["check-acceptance"],
        ["target", "bytes"],
        ["target", "smollm2"],
        ["vocab", "build"],
    ],
)
def test_help_teaches_by_example(command: list[str]) -> None:
    output = run(*command, "--help").output
    assert "Example" in output
    assert f"mtpc {' '.join(command)}" in output.split("Example", 1)[1]


def test_version() -> None:
    assert run("--version").output.startswith("mtpc-plugins ")
