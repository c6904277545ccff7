"""The table of integration points holds in the installed SGLang; errors in it or in registering are one sentence."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from sglang.srt.arg_groups import resolution_hooks
from sglang.srt.speculative import spec_registry
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

import sglang_mtpc
from mtpc.errors import MTPCError
from mtpc.serving.integration_point import installed
from sglang_mtpc import integration_points, start_up
from sglang_mtpc.algorithm import DrafterAlgorithm
from sglang_mtpc.integration_points import START, TABLE, VERSIONS, IntegrationPoint
from sglang_mtpc.served import read
from tests.integration_points import records
from tests.sglang_mtpc.resolving import resolved

WRONG = IntegrationPoint(START, "sglang.srt.arg_groups.overrides", "resolving_view", "self x", "called", "a test")


@pytest.fixture
def unregistered(monkeypatch: pytest.MonkeyPatch) -> None:
    """As before any plugin was loaded; exceptions are shown as they were."""
    monkeypatch.setattr(spec_registry, "_REGISTRY", {})
    monkeypatch.setattr(resolution_hooks, "_HOOKS", {})
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)


def test_what_is_recorded_of_this_release_is_what_it_has() -> None:
    release = f"sglang-{version('sglang')}"
    assert records.record(release, installed) == records.read(release)


def test_check_finds_nothing_wrong() -> None:
    assert all(finding.ok and not finding.fix for finding in integration_points.check())


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({}, "where (self x) is expected"),
        ({"parameters": "server_args * more"}, "where (server_args * more) is expected"),
        ({"function": "gone"}, "gone of sglang.srt.arg_groups.overrides cannot be used"),
        ({"module": "sglang.gone"}, "of sglang.gone cannot be used"),
    ],
)
def test_a_line_that_does_not_hold(monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], part: str) -> None:
    monkeypatch.setattr(integration_points, "TABLE", [WRONG._replace(**changes)])
    (finding,) = integration_points.check()
    assert not finding.ok
    assert part in finding.detail
    assert VERSIONS in finding.fix


SHAPES = {"parallel": "drafter", "autoregressive": "fastmtp", "both": "hybrid"}
USED = {  # of each group but the start's: the shapes of drafters that a line of it refuses, on a CPU and on a GPU
    integration_points.STEP: ({"parallel", "autoregressive", "both"}, {"parallel", "autoregressive", "both"}),
    integration_points.SAMPLING: ({"parallel", "autoregressive", "both"}, {"parallel", "autoregressive", "both"}),
    integration_points.PARALLEL_ALONE: ({"parallel"}, {"parallel"}),
    integration_points.GRAPHS: (set(), {"parallel", "both"}),
    integration_points.AUTOREGRESSIVE: ({"autoregressive", "both"}, {"autoregressive", "both"}),
    integration_points.WORKER: ({"autoregressive", "both"}, {"autoregressive", "both"}),
    integration_points.HEAD: ({"autoregressive", "both"}, {"autoregressive", "both"}),
    integration_points.NATIVE: (set(), set()),
    integration_points.NATIVE_COPYING: (set(), set()),
    integration_points.LONGER: (set(), set()),
    integration_points.ADAPTED: (set(), set()),
    integration_points.STATES: (set(), set()),
    **{kind: (set(), set()) for kind in integration_points.KINDS.values()},
    integration_points.KINDS["llama"]: ({"autoregressive", "both"}, {"autoregressive", "both"}),
    integration_points.STATE: (set(), set()),
    integration_points.REQUEST_TOKENS: ({"parallel", "autoregressive", "both"}, set()),
    integration_points.LENGTHS: ({"autoregressive", "both"}, set()),
    integration_points.TIMED: ({"parallel", "autoregressive", "both"}, set()),
    integration_points.RAY: (set(), set()),
}


def test_every_group_is_used() -> None:
    assert {line.group for line in TABLE} == {START, *USED}


@pytest.mark.parametrize("group", USED)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_line_refuses_only_those_that_use_it(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, group: str, device: str
) -> None:
    monkeypatch.setattr(integration_points, "TABLE", [WRONG._replace(group=group)])
    refused = set()
    for shape, name in SHAPES.items():
        config = read(str(request.getfixturevalue(name)))[1]
        if list(integration_points.problems(integration_points.groups_used(config, device, False, False))):
            refused.add(shape)
    assert refused == USED[group][device != "cpu"]


@pytest.mark.parametrize(
    ("group", "name", "by"),
    [
        (integration_points.REQUEST_TOKENS, "fastmtp", {"vocabularies", "copies"}),
        (integration_points.REQUEST_TOKENS, "drafter", {"vocabularies", "copies"}),
        (integration_points.LENGTHS, "fastmtp", {"copies"}),
        (integration_points.LENGTHS, "hybrid", {"copies"}),
        (integration_points.LENGTHS, "drafter", set()),
    ],
)
def test_draft_vocabularies_and_copying_have_lines_of_their_own(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, group: str, name: str, by: set[str]
) -> None:
    monkeypatch.setattr(integration_points, "TABLE", [WRONG._replace(group=group)])
    config, settings = read(str(request.getfixturevalue(name)))[1], ("vocabularies", "copies")
    for setting in settings:
        used = integration_points.groups_used(config, "cuda", *(one == setting for one in settings))
        assert bool(list(integration_points.problems(used))) == (setting in by)


@pytest.mark.usefixtures("loaded")
def test_a_drafter_is_refused_before_an_engine_process_exists(
    target: Path, drafter: Path, fastmtp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(integration_points, "TABLE", [WRONG._replace(group=integration_points.AUTOREGRESSIVE)])
    path = "--speculative-draft-model-path"
    assert resolved(target, path, str(drafter)).speculative_algorithm == "MTPC"
    with pytest.raises(MTPCError, match="is expected; install an SGLang version"):
        resolved(target, path, str(fastmtp), algorithm="FASTMTP")


def test_doctor_does_not_ask_for_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = WRONG._replace(group=integration_points.RAY)
    monkeypatch.setattr(integration_points, "TABLE", [gone])
    assert [finding.ok for finding in integration_points.check()] == [False]
    monkeypatch.setattr(integration_points, "find_spec", lambda name: None)
    assert integration_points.check() == []


@pytest.mark.usefixtures("unregistered")
def test_registering() -> None:
    sglang_mtpc.register()
    found = SpeculativeAlgorithm.from_string("mtpc")
    assert isinstance(found, DrafterAlgorithm)
    assert found.supports_overlap
    sglang_mtpc.register()
    assert SpeculativeAlgorithm.from_string("MTPC") is found
    assert found.validate_server_args is not None
    found.validate_server_args(None)


@pytest.mark.usefixtures("unregistered")
def test_a_table_that_does_not_hold_reaches_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integration_points, "TABLE", [WRONG])
    refused(f"is expected; install an SGLang version {VERSIONS}")


@pytest.mark.usefixtures("unregistered")
def test_an_exception_in_registering_reaches_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError("no room")

    monkeypatch.setattr(start_up, "install", fail)
    refused("MTPC could not be registered with SGLang: OSError: no room.")


def refused(sentence: str) -> None:
    """Registering goes well, but asking for MTPC fails with a sentence."""
    sglang_mtpc.register()
    found: Any = SpeculativeAlgorithm.from_string("MTPC")
    assert not isinstance(found, DrafterAlgorithm)
    with pytest.raises(MTPCError) as caught:
        found.validate_server_args(None)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
