"""`mtpc inspect` on good and broken drafter checkpoints."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from mtpc.files import provenance
from mtpc.lab.cli.main import app
from mtpc.lab.inspect.drafter import inspect_drafter, leaf_bytes, weight_bytes
from mtpc.lab.servers.speculation import serve_commands
from mtpc.methods.drafter import Drafter, load_drafter, save_drafter
from mtpc.methods.mtpc import MTPC, MTPCConfig
from tests.support.hub_cache import cached, go_offline
from tests.support.random_fastmtp import make_fastmtp
from tests.support.random_hybrid import forget_method, make_hybrid
from tests.support.random_lora import make_lora
from tests.support.random_models import make_byte_circuit, make_target
from tests.support.random_pair import make_pair, make_text_target
from tests.support.small_tokenizers import byte_level, sentence_piece

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


def commands_in(result: Result) -> list[str]:
    """The printed commands that serve a drafter."""
    return [line for line in result.output.splitlines() if "vllm serve " in line or "sglang.launch_server" in line]


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
    assert commands_in(result) == serve_commands(Path("TARGET"), folder, 4)
    line = next(line for line in result.output.splitlines() if line.startswith("python -m sglang.launch_server"))
    method = f"--speculative-algorithm MTPC --speculative-draft-model-path {folder}"
    assert line == f"python -m sglang.launch_server --model-path TARGET {method} --speculative-num-steps 4"


def test_an_mtp_layer(tmp_path: Path) -> None:
    folder = make_fastmtp(tmp_path / "drafter", make_target(tmp_path / "target"))
    result = CliRunner().invoke(app, ["inspect", str(folder)], env={"COLUMNS": "160"})
    assert result.exit_code == 0
    for piece in ("MTP layer", "type llama", "trained for 3", "autoregressive: input_proj", "per draft step"):
        assert piece in result.output
    assert commands_in(result) == serve_commands(Path("TARGET"), folder, 3)
    assert f"--speculative-algorithm FASTMTP --speculative-draft-model-path {folder}" in commands_in(result)[1]


def test_a_byte_circuit(tmp_path: Path) -> None:
    folder = make_byte_circuit(tmp_path / "drafter", make_target(tmp_path / "target"))
    result = CliRunner().invoke(app, ["inspect", str(folder)], env={"COLUMNS": "160"})
    assert result.exit_code == 0
    for piece in ("hmm over 256 bytes", "20 symbols", "5 unless the server sets it, at most 9", "256 tokens, those of"):
        assert piece in result.output
    assert commands_in(result) == serve_commands(Path("TARGET"), folder, 5)
    assert f"--speculative-algorithm BYTECIRCUIT --speculative-draft-model-path {folder}" in commands_in(result)[1]


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
    assert shlex.split(sglang)[-4:-2] == ["--speculative-draft-model-path", str(folder)]


def test_provenance_is_shown_and_long_values_by_their_size(tmp_path: Path) -> None:
    facts = {"target": "some-target", "losses": [0.25, 0.5], "short": "s" * 100, "long": "l" * 1234}
    save_drafter(tmp_path / "drafter", Drafter(MTPC(), CONFIG), facts)
    result = CliRunner().invoke(app, ["inspect", str(tmp_path / "drafter")], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    for piece in ("some-target", "[0.25, 0.5]", "s" * 100, "(1,234 characters in provenance.json)"):
        assert piece in result.output
    assert "llll" not in result.output


def test_the_command_is_shown_whole_and_acceptance_in_one_line(tmp_path: Path) -> None:
    figures = {"conditional_acceptance": [0.75] * 9, "marginal_acceptance": [0.5] * 9}
    lengths = {"prose T=1": 1.5, "all T=1": 3.2542, "prose T=0": 1.5, "all T=0": 3.7485}
    facts = {
        "command": f"mtpc train {'--option ' * 30}--last",
        "digest": "d" * 64,
        "heldout_acceptance": {name: {"acceptance_length": length, **figures} for name, length in lengths.items()},
    }
    save_drafter(tmp_path / "drafter", Drafter(MTPC(), CONFIG), facts)
    result = CliRunner().invoke(app, ["inspect", str(tmp_path / "drafter")], env={"COLUMNS": "80"})
    assert result.exit_code == 0
    assert result.output.count("--option") == 30 and "--last" in result.output
    assert "…" not in result.output
    assert "│ acceptance length 3.25 (T=1), 3.75 (T=0) " in result.output


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"code T=0": {"acceptance_length": 2}, "code T=1": {"acceptance_length": 1.5}}, "2.00 (code T=0), 1.50 (code"),
        ({"all T=0": {"acceptance_length": "l" * 200}}, "characters in provenance.json)"),
        ({"all T=0": ["l" * 200]}, "characters in provenance.json)"),
        ("unknown", "unknown"),
        (["l" * 200], "characters in provenance.json)"),
    ],
)
def test_acceptance_in_another_form(value: object, shown: str, folder: Path) -> None:
    provenance.write(folder, heldout_acceptance=value, command="c" * 2001)
    result = CliRunner().invoke(app, ["inspect", str(folder)], env={"COLUMNS": "160"})
    assert result.exit_code == 0
    assert shown in result.output
    assert "(2,001 characters in provenance.json)" in result.output


def test_a_draft_model(tmp_path: Path) -> None:
    """The commands are those of `mtpc convert pair`."""
    target = make_text_target(tmp_path / "target", byte_level())
    settings = {"num_drafts": 6, "min_confidence": 0.25, "context": 128, "slots": 3}
    folder = make_pair(tmp_path / "pair", target, "slem", tokenizer=sentence_piece(), **settings)
    result = CliRunner().invoke(app, ["inspect", str(folder), "--target", str(target)], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert commands_in(result) == serve_commands(target, folder, 6)
    assert commands_in(result)[0].startswith("VLLM_USE_V2_MODEL_RUNNER=0 vllm serve ")
    assert "num_drafts 6, min_confidence 0.25, context 128, slots 3 " in result.output
    sentence_piece().save_pretrained(target)
    result = CliRunner().invoke(app, ["inspect", str(folder), "--target", str(target)])
    assert result.exit_code == 2
    assert f"was trained for another vocabulary than that of {target}" in result.stderr


def test_a_target_is_checked_and_served(tmp_path: Path) -> None:
    target = make_target(tmp_path / "a target")
    folder = make_fastmtp(tmp_path / "drafter", target)
    result = CliRunner().invoke(app, ["inspect", str(folder), "--target", str(target)], env={"COLUMNS": "300"})
    assert result.exit_code == 0, result.output
    assert f", as {target} " in result.output
    assert commands_in(result) == serve_commands(target, folder, 3)
    config = json.loads((target / "config.json").read_text())
    size = config["vocab_size"]
    for changed, sentence in (
        ({"vocab_size": 999}, f"was trained for a target with vocab_size {size}, but the target has 999.\n"),
        ({"hidden_size": None}, "config.json has no hidden_size and vocab_size, the sizes of the target.\n"),
        ({"architectures": 3}, "architectures"),
    ):
        (target / "config.json").write_text(json.dumps(config | changed))
        result = CliRunner().invoke(app, ["inspect", str(folder), "--target", str(target)])
        assert result.exit_code == 2
        assert sentence in result.stderr and result.stderr.count("\n") == 1
    result = CliRunner().invoke(app, ["inspect", str(folder), "--target", str(folder)])
    assert "but a target was expected" in result.stderr


def test_a_target_with_too_few_layers(tmp_path: Path) -> None:
    target = make_target(tmp_path / "target")
    folder = make_lora(tmp_path / "drafter", target)
    arguments = ["inspect", str(folder), "--target", str(target)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 9}))
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "but this target has 9.\n" in result.stderr


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
