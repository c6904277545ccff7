"""`mtpc inspect` on good and broken drafter checkpoints."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mtpc.files import provenance
from mtpc.lab.cli.main import app
from mtpc.lab.inspect.drafter import inspect_drafter, leaf_bytes, weight_bytes
from mtpc.lab.servers.speculation import speculative_config
from mtpc.methods.drafter import Drafter, load_drafter, save_drafter
from mtpc.methods.mtpc import MTPC, MTPCConfig
from tests.support.hub_cache import cached, go_offline
from tests.support.random_fastmtp import make_fastmtp
from tests.support.random_hybrid import forget_method, make_hybrid
from tests.support.random_models import make_byte_circuit, make_target

CONFIG = MTPCConfig(circuit="btree", window=5, rank=3, hidden_size=16, vocab_size=20, trunk_size=8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small untrained drafter."""
    save_drafter(tmp_path / "drafter", Drafter(MTPC(), CONFIG), {"seed": 7})
    return tmp_path / "drafter"


@pytest.fixture
def methods_as_before() -> Iterator[None]:
    """A drafter of the third draft method makes the draft method known."""
    yield
    forget_method()


def test_counts_every_parameter_once(folder: Path) -> None:
    inspection = inspect_drafter(folder)
    assert set(inspection.parameters) == {"parallel"}
    assert set(inspection.parameters["parallel"]) == {"trunk", "leaves", "sums"}
    assert inspection.parameters["parallel"]["trunk"] == 2 * 16 * 8
    assert inspection.total == sum(p.numel() for p in load_drafter(folder).parameters())


def test_weights_read_are_the_weights_on_disk(folder: Path) -> None:
    stored = (folder / "model.safetensors").stat().st_size
    header = stored - weight_bytes(inspect_drafter(folder).parameters["parallel"])
    assert 0 < header < 4096  # what remains is the header of the file
    parallel = load_drafter(folder).parallel
    assert parallel is not None
    assert leaf_bytes(parallel) == 4 * math.prod((5, 3, 20))


def test_ff_has_no_sums_and_no_trunk(tmp_path: Path) -> None:
    config = MTPCConfig(circuit="ff", window=4, rank=1, hidden_size=16, vocab_size=20)
    save_drafter(tmp_path, Drafter(MTPC(), config), {})
    assert set(inspect_drafter(tmp_path).parameters["parallel"]) == {"leaves"}


def test_shows_what_it_is_and_how_to_serve_it(folder: Path) -> None:
    result = CliRunner().invoke(app, ["inspect", str(folder)])
    assert result.exit_code == 0
    for piece in ("btree", "5 tokens", "4 draft", "hidden size 16, vocabulary 20", "seed", "7"):
        assert piece in result.output
    line = next(line for line in result.output.splitlines() if line.startswith("vllm serve"))
    values = json.loads(line.split("'")[1])
    assert values["model"] == str(folder)
    assert values["num_speculative_tokens"] == 4
    assert line.split("'")[1] == speculative_config(folder, 4)
    line = next(line for line in result.output.splitlines() if line.startswith("python -m sglang.launch_server"))
    assert line.endswith(f"--speculative-algorithm MTPC --speculative-draft-model-path {folder}")


def test_an_mtp_layer(tmp_path: Path) -> None:
    folder = make_fastmtp(tmp_path / "drafter", make_target(tmp_path / "target"))
    result = CliRunner().invoke(app, ["inspect", str(folder)], env={"COLUMNS": "160"})
    assert result.exit_code == 0
    for piece in ("MTP layer", "type llama", "trained for 3", "autoregressive: input_proj", "per draft step"):
        assert piece in result.output
    lines = [line for line in result.output.splitlines() if line.startswith(("vllm serve", "python -m sglang"))]
    assert lines[0].endswith(f"'{speculative_config(folder, 3)}'")
    assert lines[1].endswith(f"--speculative-algorithm FASTMTP --speculative-draft-model-path {folder}")


def test_a_byte_circuit(tmp_path: Path) -> None:
    folder = make_byte_circuit(tmp_path / "drafter", make_target(tmp_path / "target"))
    result = CliRunner().invoke(app, ["inspect", str(folder)], env={"COLUMNS": "160"})
    assert result.exit_code == 0
    for piece in ("hmm over 256 bytes", "20 symbols", "5 unless the server sets it, at most 9", "256 tokens, those of"):
        assert piece in result.output
    lines = [line for line in result.output.splitlines() if line.startswith(("vllm serve", "python -m sglang"))]
    assert lines[0].endswith(f"'{speculative_config(folder, 5)}'")
    assert lines[1].endswith(f"--speculative-algorithm BYTECIRCUIT --speculative-draft-model-path {folder}")


@pytest.mark.usefixtures("methods_as_before")
def test_both_parts_are_told_apart(tmp_path: Path) -> None:
    folder = make_hybrid(tmp_path / "drafter", make_target(tmp_path / "target"))
    inspection = inspect_drafter(folder)
    assert set(inspection.parameters) == {"autoregressive", "parallel"}
    assert inspection.total == sum(p.numel() for p in load_drafter(folder).parameters())
    assert [("step" in read, "leaf" in read) for read in inspection.reads] == [(True, False)] * 3 + [(False, True)]
    result = CliRunner().invoke(app, ["inspect", str(folder)])
    assert result.exit_code == 0
    for piece in ("hybrid", "autoregressive: block", "parallel: leaves"):
        assert piece in result.output
    assert "--speculative-algorithm HYBRID" in result.output


def test_the_lines_can_be_pasted_whatever_the_path(tmp_path: Path) -> None:
    folder = tmp_path / "Anna's drafters" / 'the "first" & best'
    save_drafter(folder, Drafter(MTPC(), CONFIG), {})
    result = CliRunner().invoke(app, ["inspect", str(folder)])
    assert result.exit_code == 0
    vllm, sglang = (line for line in result.output.splitlines() if line.startswith(("vllm serve", "python -m sglang")))
    *_, option, value = shlex.split(vllm)
    assert (option, json.loads(value)["model"]) == ("--speculative-config", str(folder))
    assert shlex.split(sglang)[-2:] == ["--speculative-draft-model-path", str(folder)]


def test_provenance_is_shown_and_long_values_by_their_size(tmp_path: Path) -> None:
    facts = {"target": "some-target", "losses": [0.25, 0.5], "short": "s" * 100, "long": "l" * 1234}
    save_drafter(tmp_path / "drafter", Drafter(MTPC(), CONFIG), facts)
    result = CliRunner().invoke(app, ["inspect", str(tmp_path / "drafter")], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    for piece in ("some-target", "[0.25, 0.5]", "s" * 100, "(1,234 characters in provenance.json)"):
        assert piece in result.output
    assert "llll" not in result.output


def test_without_provenance_it_says_so(folder: Path) -> None:
    (folder / "provenance.json").unlink()
    result = CliRunner().invoke(app, ["inspect", str(folder)])
    assert result.exit_code == 0
    assert "no provenance.json" in result.output
    assert provenance.read(folder) == {}


def test_what_is_in_brackets_is_shown_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "[/b] :smile:"
    save_drafter(folder, Drafter(MTPC(), CONFIG), {"[bold]": "[/y] [red]none[/]"})
    result = CliRunner().invoke(app, ["inspect", str(folder)])
    assert result.exit_code == 0
    assert "[bold]" in result.output and "[/y] [red]none[/]" in result.output


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", None, "is missing"),
        ("config.json", "{", "cannot be read as JSON"),
        ("config.json", "{}", "no section 'mtpc'"),
        ("model.safetensors", None, "is missing"),
        ("model.safetensors", "short", "damaged"),
        ("provenance.json", "{", "cannot be read as JSON"),
        ("provenance.json", "[]", "a JSON object was expected"),
    ],
)
def test_broken_directories_end_in_one_sentence(folder: Path, file: str, content: str | None, message: str) -> None:
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(content)
    result = CliRunner().invoke(app, ["inspect", str(folder)])
    assert result.exit_code == 2
    assert message in result.stderr
    assert file in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("file", "content"),
    [("vocabulary.json", "{}"), ("vocabulary.json", "["), ("copying.json", '{"chances": []}'), ("copying.json", "{")],
)
def test_files_next_to_the_weights_that_serving_would_refuse(tmp_path: Path, file: str, content: str) -> None:
    folder = make_fastmtp(tmp_path / "drafter", make_target(tmp_path / "target"))
    (folder / file).write_text(content)
    result = CliRunner().invoke(app, ["inspect", str(folder)])
    assert result.exit_code == 2
    assert str(folder / file) in result.stderr
    assert result.stderr.count("\n") == 1


def test_what_a_file_says_is_never_markup(folder: Path) -> None:
    provenance.write(folder, note="[/y]", **{"[/z]": "[red]"})
    renamed = folder.rename(folder.parent / "[x]")
    result = CliRunner().invoke(app, ["inspect", str(renamed)])
    assert result.exit_code == 0
    assert all(text in result.output for text in ("[/y]", "[/z]", "[red]", "[x]"))


def test_a_hugging_face_id(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_offline(monkeypatch, tmp_path)
    monkeypatch.chdir(tmp_path)
    snapshot = cached(tmp_path, "owner/inspected", folder, ref="v1")
    result = CliRunner().invoke(app, ["inspect", "owner/inspected@v1"])
    assert result.exit_code == 0, result.stderr
    assert str(snapshot) in result.stdout
    every = {
        "inspect DIR": ["inspect", "owner/none"],
        "inspect": ["inspect", str(folder), "--target", "owner/none"],
        "evaluate DIR": ["evaluate", str(folder), "owner/none", "--target", "a"],
        "evaluate": ["evaluate", str(folder), "--target", "owner/none"],
        "bench": ["bench", "--target", "owner/none"],
        "bench drafter": ["bench", "--drafter", "owner/none"],
        "prove": ["prove", "--target", "owner/none"],
        "distill": ["distill", "--out", "out", "--target", "owner/none"],
        "vocab": ["vocab", "build", "words.json", "--target", "owner/none"],
        "train mtpc": ["train", "mtpc", "--target", "owner/none"],
        "train copying": ["train", "copying", "--out", "out", "--target", "owner/none"],
        "train fastmtp": ["train", "fastmtp", "--data", "d", "--out", "out", "--target", "owner/none"],
        "fastmtp start": ["train", "fastmtp", "--data", "d", "--out", "out", "--target", "a", "--start", "owner/none"],
        "train gumiho": ["train", "gumiho", "--data", "d", "--out", "out", "--target", "a", "--start", "owner/none"],
        "convert evabyte": ["convert", "evabyte", "owner/none", "out"],
        "convert fastmtp": ["convert", "fastmtp", "owner/none", "out"],
        "convert gumiho": ["convert", "gumiho", "owner/none", "out"],
        "convert mtpc": ["convert", "mtpc", "owner/none", "out"],
        "convert medusa": ["convert", "medusa", "owner/none", "--target", "a", "--out", "out"],
        "medusa target": ["convert", "medusa", "a", "--target", "owner/none", "--out", "out"],
    }
    for name, arguments in every.items():
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 2, name
        assert result.stderr.startswith("mtpc: owner/none is neither a folder nor available from the Hugging Face"), (
            name
        )
        assert result.stderr.count("\n") == 1, name
