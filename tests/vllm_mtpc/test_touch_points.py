"""The table holds in the installed vLLM, and says so in one sentence where it does not."""

from __future__ import annotations

import logging
import sys
from typing import Any

import pytest
from vllm import ModelRegistry

import vllm_mtpc
from mtpc.errors import MTPCError
from vllm_mtpc import touch_points
from vllm_mtpc.settings import check_settings
from vllm_mtpc.touch_points import PATCHES, TABLE, VERSIONS, TouchPoint

WRONG = TouchPoint(
    "start-up", "vllm.engine.arg_utils", "EngineArgs.create_engine_config", "self x", "wrapped", "a test"
)


@pytest.mark.parametrize("line", TABLE, ids=[line.function for line in TABLE])
def test_every_line_holds(line: TouchPoint) -> None:
    assert line.problem() is None


def test_check_finds_nothing_wrong() -> None:
    assert all(finding.ok and not finding.mend for finding in touch_points.check())


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({}, "where (self x) is expected"),
        ({"function": "EngineArgs.gone"}, "EngineArgs.gone of vllm.engine.arg_utils cannot be used"),
        ({"module": "vllm.gone"}, "of vllm.gone cannot be used"),
    ],
)
def test_a_line_that_does_not_hold(monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], part: str) -> None:
    monkeypatch.setattr(touch_points, "TABLE", [WRONG._replace(**changes)])
    (finding,) = touch_points.check()
    assert not finding.ok
    assert part in finding.detail
    assert VERSIONS in finding.mend


def test_a_group_with_a_wrong_line_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(touch_points, "TABLE", [WRONG])
    monkeypatch.setattr(touch_points.logger, "handlers", [caplog.handler])
    module = sys.modules["vllm.engine.arg_utils"]
    before = module.EngineArgs.create_speculative_config  # type: ignore[attr-defined]
    with caplog.at_level(logging.WARNING, touch_points.logger.name):
        touch_points._apply("start-up", module)
    assert module.EngineArgs.create_speculative_config is before  # type: ignore[attr-defined]
    assert VERSIONS in caplog.text


def test_a_drafter_is_refused_where_a_line_does_not_hold(monkeypatch: pytest.MonkeyPatch, drafter: Any) -> None:
    monkeypatch.setattr(touch_points, "TABLE", [WRONG])
    settings = {"method": "eagle", "model": str(drafter), "num_speculative_tokens": 5}
    with pytest.raises(MTPCError, match="is expected; install a vLLM version"):
        check_settings(settings, None)
    check_settings({"method": "ngram"}, None)


def test_registering_twice_changes_nothing() -> None:
    vllm_mtpc.register()
    before = sys.modules["vllm.engine.arg_utils"].EngineArgs.create_speculative_config  # type: ignore[attr-defined]
    vllm_mtpc.register()
    assert sys.modules["vllm.engine.arg_utils"].EngineArgs.create_speculative_config is before  # type: ignore[attr-defined]
    assert vllm_mtpc.ARCHITECTURE in ModelRegistry.get_supported_archs()
    assert {line.group for line in TABLE} == set(PATCHES)
