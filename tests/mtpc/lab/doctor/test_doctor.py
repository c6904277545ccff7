"""`mtpc doctor` on environments with something wrong."""

from __future__ import annotations

from importlib import metadata
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint

import pytest
import torch
from typer.testing import CliRunner

from mtpc import methods
from mtpc.lab.cli.main import app
from mtpc.lab.doctor import CheckResult, checks
from mtpc.methods.fastmtp import FastMTP
from mtpc.methods.mtpc import MTPC


def good_check() -> list[CheckResult]:
    """An adapter whose engine is as expected."""
    return [CheckResult("fake: Proposer.propose", True, "called: drafts")]


def bad_check() -> list[CheckResult]:
    """An adapter whose engine has changed."""
    return [
        *good_check(),
        CheckResult("fake: Sampler", False, "takes (a b) where (a) is expected", "Install fake 1.0."),
    ]


def broken_check() -> list[CheckResult]:
    """An adapter that cannot even look."""
    raise AttributeError("module fake has no Proposer")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Adapters of the engine "fake", by the name of the check; versions of what is installed."""
    installed = {"torch": "2.9", "safetensors": "0.6", "transformers": "5.0", "numpy": "2.0"}
    installed |= {"fake": "1.1", "mtpc-plugins": "0.1"}
    monkeypatch.setattr(checks, "version", installed.get)
    monkeypatch.setattr(checks, "ENGINES", {"fake": ("fake",)})
    monkeypatch.setattr(methods, "draft_methods", lambda: (MTPC(), FastMTP()))
    return installed


def use_adapter(monkeypatch: pytest.MonkeyPatch, check: str, engine: str = "fake") -> None:
    """Register one of the checks above as an adapter's."""
    entry = EntryPoint(engine, f"{__name__}:{check}", checks.ADAPTERS)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [entry] if group == checks.ADAPTERS else [])
    monkeypatch.setattr(EntryPoint, "load", lambda self: globals()[check])


def test_all_is_well(machine: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    use_adapter(monkeypatch, "good_check")
    result = CliRunner().invoke(app, ["doctor"], env={"COLUMNS": "160"})
    assert result.exit_code == 0
    lines = [line.replace("│", " ").split() for line in result.output.splitlines()]
    assert ["ok", "mtpc-plugins", "0.1"] in lines
    assert ["ok", "fake", "1.1", *["1", "integration", "point", "ok"]] in lines
    assert "fake: Proposer.propose" not in result.output
    assert "failed" not in result.output and "fix" not in result.output


def test_every_integration_point_on_demand(machine: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    use_adapter(monkeypatch, "good_check")
    result = CliRunner().invoke(app, ["doctor", "--verbose"], env={"COLUMNS": "160"})
    assert result.exit_code == 0
    assert "fake: Proposer.propose" in result.output
    assert "integration point ok" not in result.output


@pytest.mark.parametrize(("capability", "gpu", "advised"), [("AVX2", 0, 1), ("AVX512", 0, 0), ("AVX2", 1, 0)])
def test_a_cpu_that_is_slow_in_bfloat16(
    capability: str, gpu: int, advised: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(gpu))
    monkeypatch.setattr(checks.provenance, "hardware", lambda: {"processor": "one", "cores": 2})
    found = checks.processor()
    assert found.ok and ("--dtype float32" in found.detail) == bool(advised)


def test_a_failing_integration_point_fails_the_command_and_names_the_fix(
    machine: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use_adapter(monkeypatch, "bad_check")
    result = CliRunner().invoke(app, ["doctor"], env={"COLUMNS": "160"})
    assert result.exit_code == 1
    assert "takes (a b) where (a) is expected" in result.output
    assert "Install fake 1.0." in result.output
    assert "1 of 2 integration points failed, listed below" in result.output
    assert "fake: Proposer.propose" not in result.output
    assert "1 of 12 checks failed" in result.output


def test_names_are_folded_in_a_narrow_terminal(machine: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    name, fix = "Long" * 30, "Install fake 1.0."
    monkeypatch.setattr(checks, "adapter", lambda *_: [CheckResult(f"fake: {name}", False, "d" * 200, fix)])
    use_adapter(monkeypatch, "good_check")
    result = CliRunner().invoke(app, ["doctor"], env={"COLUMNS": "60"})
    assert result.exit_code == 1
    assert "…" not in result.output
    cells = [line.split("│")[2:4] for line in result.output.splitlines() if line.count("│") == 4]
    check, found = ("".join(cell.strip() for cell in column) for column in zip(*cells, strict=True))
    assert name in check.removeprefix("fake: ") and f"{'d' * 200}{fix}" in found


def test_a_check_that_breaks_is_a_finding(machine: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    use_adapter(monkeypatch, "broken_check")
    finding = checks.examination().all[-1]
    assert not finding.ok
    assert finding.detail == "AttributeError: module fake has no Proposer"
    assert finding.fix


def test_an_adapter_without_its_engine_is_not_asked(machine: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    use_adapter(monkeypatch, "broken_check", engine="other")
    assert all(finding.ok for finding in checks.examination().all)


def test_no_engine_at_all(machine: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    del machine["fake"]
    use_adapter(monkeypatch, "broken_check")
    failed = [finding for finding in checks.examination().all if not finding.ok]
    assert [finding.subject for finding in failed] == ["engine"]
    assert "make_env.sh" in failed[0].fix


@pytest.mark.parametrize(
    ("installed", "gpu", "kernels", "expected"),
    [
        ("0.5.23", None, True, [True]),
        ("0.5.23", None, False, [False]),
        ("0.5.23", "H200", False, []),
        (None, None, False, []),
    ],
)
def test_kernels_that_sglang_needs_on_a_cpu(
    installed: str | None, gpu: str | None, kernels: bool, expected: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "version", {"sglang": installed}.get)
    monkeypatch.setattr(checks.provenance, "hardware", lambda: {"gpu": gpu})
    monkeypatch.setattr(checks, "find_spec", lambda name: ModuleSpec(name, None, origin="there") if kernels else None)
    findings = list(checks.kernels())
    assert [finding.ok for finding in findings] == expected
    assert all(finding.ok or "make_env.sh sglang" in finding.fix for finding in findings)


def test_every_family_has_a_line_that_says_where_it_comes_from(
    machine: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use_adapter(monkeypatch, "good_check")
    lines = {finding.subject: finding.detail for finding in checks.examination().all}
    for method in (MTPC(), FastMTP()):
        assert method.summary in lines[f"draft method: {method.name}"]
        assert type(method).__module__ in lines[f"draft method: {method.name}"]


def test_a_family_that_cannot_be_loaded_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "broken_methods", lambda: {"gumiho": "ModuleNotFoundError: No module named 'gumiho'"})
    *known, broken = checks.draft_methods()
    assert all(finding.ok for finding in known)
    assert not broken.ok
    assert "gumiho" in broken.detail
    assert broken.fix


def test_a_missing_library(machine: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    del machine["safetensors"]
    use_adapter(monkeypatch, "good_check")
    assert [finding[2:] for finding in checks.examination().all if not finding.ok] == [
        ("not installed", "Run `pip install safetensors`.")
    ]
    assert checks.library("numpy") == CheckResult("numpy", True, "2.0", "")


@pytest.mark.parametrize(("running", "ok"), [((3, 10), False), ((3, 11), True), ((3, 13), True), ((3, 14), False)])
def test_python_versions(running: tuple[int, int], ok: bool) -> None:
    finding = checks.python(running)
    assert finding.ok is ok
    assert bool(finding.fix) is not ok
