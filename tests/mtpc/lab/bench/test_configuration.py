"""A serving configuration from a benchmark's results: its contents, and the files that it does not overwrite."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
import torch
from typer.testing import CliRunner, Result

from mtpc.draft_length.cost import StepCost
from mtpc.errors import MTPCError
from mtpc.lab.bench.configuration import (
    MeasuredServer,
    check_writable,
    configuration,
    read_measured_server,
    serve_command,
)
from mtpc.lab.bench.plan import best_drafts, schedule
from mtpc.lab.cli.main import app
from tests.mtpc.lab.bench.test_plan import COST, RATES, point, results
from tests.support.random_pair import make_pair

yaml = pytest.importorskip("yaml", reason="the engine's environment brings it")

WEIGHTS = Path(__file__).parents[4] / "weights"
BYTES, CHAT = str(WEIGHTS / "byte-mtpc-hmm-n8"), str(WEIGHTS / "smollm2-fastmtp")
TARGET = str(WEIGHTS / "byte-target")
COPYING = {"mtpc": {"copy": True, "step_cost": COST.model_dump()}}


def served(engine: str = "vllm", drafter: str = BYTES) -> MeasuredServer:
    return MeasuredServer(engine, TARGET, drafter)


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """Write results in which a long draft gives a speedup at batch size 1, and no draft does for large batches."""
    values = results(point(1), point(4), point(16)) | {"settings": served()._asdict()}
    (tmp_path / "results.json").write_text(json.dumps(values))
    return tmp_path / "results.json"


def plan(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["plan", *map(str, arguments)])


def written(file: Path) -> dict[str, Any]:
    return dict(yaml.safe_load(file.read_text()))


def test_vllm_drafts_by_batch_size(measured: Path) -> None:
    out, ranges = measured.with_name("own.yaml"), schedule(COST, RATES, 64)
    assert len(ranges) > 1
    result = plan(measured, "--out", out, "--max-batch", 64)
    assert result.exit_code == 0
    assert f"written to {out}: vllm serve --config {out}\n" in result.output
    assert written(out) == {
        "model": TARGET,
        "max-num-seqs": 64,
        "speculative-config": {
            "method": "eagle",
            "model": BYTES,
            "num_speculative_tokens": best_drafts(COST, 1, RATES),
            "draft_sample_method": "probabilistic",
            "num_speculative_tokens_per_batch_size": ranges,
        },
    }
    assert out.read_text().startswith(f"# vllm serve --config {out}\n# Made by `")


def test_extrapolated_batch_sizes_are_named_in_the_file(measured: Path) -> None:
    """The folder stands for its results.json."""
    out = measured.with_name("own.yaml")
    assert plan(measured.parent, "--out", out, "--max-batch", 64).exit_code == 0
    *_, note = (line for line in out.read_text().splitlines() if line.startswith("# "))
    assert note.startswith("# Batch sizes 17 to 64 are extrapolated from 4 and 16: ")
    assert written(out)["max-num-seqs"] == 64
    assert plan(measured, "--out", out, "--max-batch", 16, "--force").exit_code == 0
    assert "are extrapolated from" not in out.read_text()


def test_one_number_needs_no_schedule() -> None:
    speculative = configuration(served(), [[1, 16, 3]], None)["speculative-config"]
    assert speculative["num_speculative_tokens"] == 3
    assert "num_speculative_tokens_per_batch_size" not in speculative


def test_with_copying_lengths_follow_from_what_steps_cost(measured: Path) -> None:
    out = measured.with_name("own.yml")
    assert plan(measured, "--copy", "--out", out).exit_code == 0
    found = written(out)
    assert found["additional-config"]["mtpc"]["copy"] is True
    assert StepCost(**found["additional-config"]["mtpc"]["step_cost"]) == COST
    assert found["speculative-config"]["num_speculative_tokens"] == 10
    assert "num_speculative_tokens_per_batch_size" not in found["speculative-config"]


def test_with_copying_on_a_gpu_drafts_have_the_drafters_own_length(
    measured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Model Runner V2 accepts neither longer ones nor costs of steps."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    out = measured.with_name("own.yaml")
    assert plan(measured, "--copy", "--out", out).exit_code == 0
    found = written(out)
    assert found["additional-config"] == {"mtpc": {"copy": True}}
    assert found["speculative-config"]["num_speculative_tokens"] == 7


def test_sglang_copies_with_an_adaptive_draft_length(measured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    out = measured.with_name("own.yaml")
    for engine in ("vllm", "sglang"):  # where the costs are those of the other engine, the server measures its own
        measured.write_text(json.dumps(json.loads(measured.read_text()) | {"settings": served(engine)._asdict()}))
        result = plan(measured, "--engine", "sglang", "--copy", "--out", out, "--force")
        assert result.exit_code == 0
        assert "Best K by batch size: " in result.output and "--additional-config" not in result.output
        found = written(out)
        assert found["speculative-num-steps"] == 10
        query = dict(parse_qsl(found["speculative-token-map"].removeprefix("?")))
        assert query["copy"] == "true"
        assert ("All costs are those of vllm" in result.output) is (engine == "vllm")
        assert ("step_cost" in query) is (engine == "sglang")
    assert StepCost.model_validate_json(query["step_cost"]) == COST


def test_sglangs_draft_length_on_a_gpu_is_the_fastest_of_each_batch_size(
    measured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    out, ranges = measured.with_name("own.yaml"), schedule(COST, RATES, 64)
    result = plan(measured, "--engine", "sglang", "--copy", "--out", out, "--max-batch", 64)
    assert f"python -m sglang.launch_server --config {out}\n" in result.output
    steps = measured.with_name("own.steps.json")
    assert written(out) == {
        "model-path": TARGET,
        "max-running-requests": 64,
        "speculative-algorithm": "MTPC",
        "speculative-draft-model-path": BYTES,
        "speculative-num-steps": best_drafts(COST, 1, RATES),
        "speculative-eagle-topk": 1,
        "speculative-adaptive": True,
        "speculative-adaptive-config": str(steps),
        "speculative-token-map": "?copy=true",
        "disable-overlap-schedule": True,
    }
    assert json.loads(steps.read_text()) == {str(first): {"candidate_steps": [best]} for first, _, best in ranges}
    out.unlink()
    assert (
        "own.steps.json exists already" in plan(measured, "--engine", "sglang", "--out", out, "--max-batch", 64).output
    )
    assert not out.exists()
    assert plan(measured, "--engine", "vllm", "--out", out).exit_code == 0  # which writes no such file
    assert plan(measured, "--engine", "sglang", "--out", out, "--force").exit_code == 0
    assert not {"speculative-token-map", "disable-overlap-schedule"} & set(written(out))


def test_sglang_adapts_no_draft_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drafter = make_pair(tmp_path / "pair", Path(TARGET), "slem")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    values = configuration(MeasuredServer("sglang", TARGET, str(drafter)), [[1, 4, 3], [5, 16, 0]], None)
    assert values["speculative-num-steps"] == 3
    assert "speculative-adaptive" not in values


def test_a_text_part_is_served_by_the_v1_runner(tmp_path: Path) -> None:
    drafter = make_pair(tmp_path / "pair", Path(TARGET), "slem")
    for engine, command, prefix in (("vllm", "vllm", "VLLM_USE_V2_MODEL_RUNNER=0 "), ("sglang", "python", "")):
        pair = MeasuredServer(engine, TARGET, str(drafter))
        values, plain = (configuration(pair, [[1, 16, drafts]], None) for drafts in (3, 0))
        assert serve_command(engine, tmp_path / "own.yaml", values).startswith(prefix + command)
        assert values.get("no-async-scheduling", False) is (engine == "vllm")
        assert serve_command(engine, tmp_path / "own.yaml", plain).startswith(command)
        assert "no-async-scheduling" not in plain


def test_sglang_copies_with_an_autoregressive_part_as_well() -> None:
    values = configuration(served("sglang", CHAT), [[1, 16, 3]], COPYING)
    assert values["speculative-algorithm"] == "FASTMTP"
    assert values["speculative-token-map"].startswith("?copy=true")


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_where_no_draft_gives_a_speedup_there_is_no_drafter(engine: str, tmp_path: Path) -> None:
    rates = (0.01, 0.0, 0.0)
    values = results(*(point(batch, rates) for batch in (1, 4, 16))) | {"settings": served(engine)._asdict()}
    (tmp_path / "results.json").write_text(json.dumps(values))
    result = plan(tmp_path / "results.json", "--out", tmp_path / "own.yaml")
    assert "No K gives a speedup: the configuration has no drafter.\n" in result.output
    assert set(written(tmp_path / "own.yaml")) < {"model", "max-num-seqs", "model-path", "max-running-requests"}


def test_vllm_drafts_at_some_batch_size_or_not_at_all() -> None:
    assert "speculative-config" in configuration(served(), [[1, 1, 0], [2, 16, 2]], None)
    assert "speculative-algorithm" not in configuration(served("sglang"), [[1, 1, 0], [2, 16, 2]], None)
    # With prompt lookup, a step in which drafting gives no speedup drafts nothing.
    assert "speculative-config" in configuration(served(), [[1, 16, 0]], COPYING)


def test_a_file_is_replaced_only_on_demand(measured: Path) -> None:
    out = measured.with_name("own.yaml")
    out.write_text("mine")
    result = plan(measured, "--out", out)
    assert result.exit_code == 2
    assert "own.yaml exists already: give another path, or --force to replace a file.\n" in result.output
    assert "Speedup" not in result.output  # it is tried first
    assert out.read_text() == "mine"
    assert plan(measured, "--out", out, "--force").exit_code == 0
    assert written(out)["model"] == TARGET


def test_paths_that_cannot_be_written(tmp_path: Path) -> None:
    for name, force, sentence in (
        ("file/own.yaml", False, "cannot be written: Not a directory; choose another path."),
        ("own.json", False, "the engines read only files that end in .yaml or .yml."),
        ("folder.yaml", True, "exists already"),
    ):
        (tmp_path / "folder.yaml").mkdir(exist_ok=True)
        (tmp_path / "file").touch()
        with pytest.raises(MTPCError) as caught:
            check_writable(tmp_path / name, force)
        assert sentence in str(caught.value)
    check_writable(tmp_path / "none" / "own.yaml", force=False)
    assert {file.name for file in tmp_path.iterdir()} == {"folder.yaml", "file"}


@pytest.mark.parametrize("options", [["--copy"], ["--force"], ["--engine", "sglang"]])
def test_options_of_a_file_that_is_not_written(options: list[str], measured: Path) -> None:
    result = plan(measured, *options)
    assert result.exit_code == 2
    assert f"{options[0]} requires --out FILE.yaml" in result.output


def test_an_engine_that_is_not_known(measured: Path) -> None:
    result = plan(measured, "--engine", "tgi", "--out", measured.with_name("own.yaml"))
    assert result.exit_code == 2
    assert "'tgi' is not one of 'vllm', 'sglang'" in result.output
    assert not measured.with_name("own.yaml").exists()


@pytest.mark.parametrize("settings", [{}, {"settings": []}, {"settings": {"engine": "vllm", "target": None}}])
def test_results_that_do_not_name_what_was_served(settings: dict[str, Any], measured: Path) -> None:
    measured.write_text(json.dumps(results(point(1), point(4)) | settings))
    assert plan(measured).exit_code == 0
    result = plan(measured, "--out", measured.with_name("own.yaml"))
    assert result.exit_code == 2
    assert "does not name engine, target and drafter" in result.output
    with pytest.raises(MTPCError, match="does not name"):
        read_measured_server(measured)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("what", ["target", "drafter"])
def test_folders_that_are_not_there(what: str, engine: str, measured: Path) -> None:
    gone = served(engine)._replace(**{what: "gone"})
    measured.write_text(json.dumps(results(point(1), point(4)) | {"settings": gone._asdict()}))
    result = plan(measured, "--out", measured.with_name("own.yaml"))
    assert result.exit_code == 2
    assert result.stderr.startswith("mtpc: gone is not a ")
    assert not measured.with_name("own.yaml").exists()
    assert plan(measured).exit_code == 0
