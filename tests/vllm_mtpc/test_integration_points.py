"""The table of integration points holds in the installed vLLM; errors in it are one sentence."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import vllm
from vllm import ModelRegistry

import vllm_mtpc
from mtpc.errors import MTPCError
from mtpc.methods import draft_methods
from mtpc.serving.integration_point import installed
from tests.integration_points import records
from vllm_mtpc import integration_points
from vllm_mtpc.integration_points import PATCHES, TABLE, VERSIONS, IntegrationPoint, Patch
from vllm_mtpc.settings import check_settings

WRONG = IntegrationPoint(
    "start-up", "vllm.engine.arg_utils", "EngineArgs.create_engine_config", "self x", "wrapped", "a test"
)


def test_what_is_recorded_of_this_release_is_what_it_has() -> None:
    release = f"vllm-{vllm.__version__.split('+')[0]}"
    assert records.record(release, installed) == records.read(release)


def test_check_finds_nothing_wrong() -> None:
    assert all(finding.ok and not finding.fix for finding in integration_points.check())


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({}, "where (self x) is expected"),
        ({"function": "EngineArgs.gone"}, "EngineArgs.gone of vllm.engine.arg_utils cannot be used"),
        ({"module": "vllm.gone"}, "of vllm.gone cannot be used"),
    ],
)
def test_a_line_that_does_not_hold(monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], part: str) -> None:
    monkeypatch.setattr(integration_points, "TABLE", [WRONG._replace(**changes)])
    (finding,) = integration_points.check()
    assert not finding.ok
    assert part in finding.detail
    assert VERSIONS in finding.fix


START = next(patch for patch in PATCHES if patch.group == integration_points.START)


def test_a_module_with_a_wrong_line_is_left_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(integration_points, "TABLE", [WRONG])
    monkeypatch.setattr(integration_points.logger, "handlers", [caplog.handler])
    module = sys.modules["vllm.engine.arg_utils"]
    before = module.EngineArgs.create_speculative_config  # type: ignore[attr-defined]
    with caplog.at_level(logging.WARNING, integration_points.logger.name):
        integration_points._apply(START, module)
    assert module.EngineArgs.create_speculative_config is before  # type: ignore[attr-defined]
    assert VERSIONS in caplog.text


ASKED_FOR = {  # arguments of `integration_points.problems` that need a patch of this group
    integration_points.START: {},
    integration_points.V1: {},
    integration_points.V2: {},
    integration_points.V1_NATIVE: {"native": True},
    integration_points.V1_CPU: {},
    integration_points.V2_STATE: {"state": True},
    integration_points.V1_TEXT: {"text": True},
}


@pytest.mark.parametrize("patch", PATCHES, ids=[f"{patch.file}.{patch.function}" for patch in PATCHES])
def test_who_asks_for_a_patch_that_is_left_out_is_refused(monkeypatch: pytest.MonkeyPatch, patch: Patch) -> None:
    applied: list[str] = []
    monkeypatch.setattr(f"vllm_mtpc.{patch.file}.{patch.function}", lambda module: applied.append(module.__name__))
    monkeypatch.setattr(integration_points, "on_cpu", lambda: True)
    monkeypatch.setattr(integration_points, "runners", lambda: {integration_points.V1, integration_points.V2})
    left_out = []
    for line in TABLE:
        monkeypatch.setattr(integration_points, "TABLE", [line._replace(parameters="changed", how="replaced")])
        applied.clear()
        integration_points._apply(patch, SimpleNamespace(__name__=patch.module))  # type: ignore[arg-type]
        if not applied:
            assert list(integration_points.problems(**ASKED_FOR[patch.group])), line
            left_out.append(line)
    assert left_out


def test_on_other_devices_patches_for_cpus_are_neither_applied_nor_missed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(integration_points, "TABLE", [WRONG._replace(group=integration_points.V1_CPU)])
    monkeypatch.setattr(integration_points, "on_cpu", lambda: False)
    monkeypatch.setattr(integration_points.logger, "handlers", [caplog.handler])
    integration_points._apply(START._replace(group=integration_points.V1_CPU), sys.modules["vllm.engine.arg_utils"])
    assert not caplog.text


def refused(drafter: Path, copies: bool = False) -> bool:
    """Whether a drafter is, for a line of the table."""
    settings = {"method": "eagle", "model": str(drafter), "num_speculative_tokens": 3}
    try:
        check_settings(settings, TARGET, {"mtpc": {"copy": copies}})
    except MTPCError as error:
        return "is expected; install a vLLM version" in str(error)
    return False


SIZES = {"get_hidden_size": lambda: 64, "get_vocab_size": lambda: 258, "get_total_num_hidden_layers": lambda: 2}
TARGET = SimpleNamespace(model="target", **SIZES)


@pytest.mark.parametrize(
    ("group", "of"),
    [
        (integration_points.START, "mtpc fastmtp hybrid"),
        (integration_points.AUTOREGRESSIVE, "fastmtp hybrid"),
        (integration_points.HEAD, "fastmtp hybrid"),
        (integration_points.PARALLEL, "mtpc hybrid"),
        (integration_points.V1, "mtpc fastmtp hybrid"),
        (integration_points.V1_AUTOREGRESSIVE, "fastmtp hybrid"),
        (integration_points.V1_PARALLEL, "mtpc hybrid"),
        (integration_points.V2_AUTOREGRESSIVE, ""),
        (integration_points.V1_CPU, "mtpc fastmtp hybrid"),
    ],
)
def test_a_drafter_is_refused_where_a_line_that_it_needs_does_not_hold(
    monkeypatch: pytest.MonkeyPatch, drafter: Path, fastmtp: Path, hybrid: Path, group: str, of: str
) -> None:
    monkeypatch.setattr(integration_points, "TABLE", [WRONG._replace(group=group)])
    monkeypatch.setattr(integration_points, "runners", lambda: {integration_points.V1})
    drafters = {"mtpc": drafter, "fastmtp": fastmtp, "hybrid": hybrid}
    assert [name for name, folder in drafters.items() if refused(folder)] == of.split()
    check_settings({"method": "ngram"}, TARGET)


@pytest.mark.parametrize(
    ("group", "of"),
    [
        (integration_points.V2_AUTOREGRESSIVE, "fastmtp fastmtp+copy"),
        (integration_points.V2_PROMPT_LOOKUP, "mtpc+copy fastmtp+copy"),
    ],
)
def test_copying_needs_lines_of_its_own(
    monkeypatch: pytest.MonkeyPatch, drafter: Path, fastmtp: Path, group: str, of: str
) -> None:
    monkeypatch.setattr(integration_points, "TABLE", [WRONG._replace(group=group)])
    monkeypatch.setattr(integration_points, "runners", lambda: {integration_points.V2})
    drafters = {"mtpc": drafter, "fastmtp": fastmtp}
    cases = [(name, folder, copies) for name, folder in drafters.items() for copies in (False, True)]
    found = [name + "+copy" * copies for name, folder, copies in cases if refused(folder, copies)]
    assert found == of.split()


def test_on_a_gpu_a_line_for_cpus_refuses_no_drafter(
    monkeypatch: pytest.MonkeyPatch, drafter: Path, fastmtp: Path
) -> None:
    monkeypatch.setattr(integration_points, "TABLE", [WRONG._replace(group=integration_points.V1_CPU)])
    monkeypatch.setattr(integration_points, "on_cpu", lambda: False)
    assert not refused(drafter)
    assert not refused(fastmtp)


@pytest.mark.parametrize(
    ("variable", "triton", "runners"),
    [("1", False, "V2"), ("0", True, "V1"), (None, False, "V1"), (None, True, "V1 V2")],
)
def test_the_runners_that_may_serve(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, triton: bool, runners: str
) -> None:
    monkeypatch.delenv("VLLM_USE_V2_MODEL_RUNNER", raising=False)
    if variable is not None:
        monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", variable)
    monkeypatch.setattr("vllm.triton_utils.HAS_TRITON", triton)
    assert integration_points.runners() == {f"{name} runner" for name in runners.split()}


def test_registering_twice_changes_nothing() -> None:
    vllm_mtpc.register()
    before = sys.modules["vllm.engine.arg_utils"].EngineArgs.create_speculative_config  # type: ignore[attr-defined]
    vllm_mtpc.register()
    assert sys.modules["vllm.engine.arg_utils"].EngineArgs.create_speculative_config is before  # type: ignore[attr-defined]
    assert {method.architecture for method in draft_methods()} <= set(ModelRegistry.get_supported_archs())


def test_the_core_logs_as_vllm_does() -> None:
    """Otherwise a warning has no time, level or process."""
    vllm_mtpc.register()
    logger, parents = logging.getLogger("mtpc.draft_length.limit"), []
    while logger.parent is not None:
        logger = logger.parent
        parents.append(logger.name)
    assert parents == ["mtpc", "vllm", "root"]
