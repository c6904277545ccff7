"""Rows: whether the adapters fit the engine that is installed; without that, nothing of it can be tried."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from importlib.util import find_spec

from mtpc.doctor import examine
from tests.gpu.running import NotRunError, Run

PLUGINS = {"vllm": "vllm.general_plugins", "sglang": "sglang.srt.plugins"}


def engine_fits(name: str) -> Callable[[Run], str]:
    """Row: what `mtpc doctor` finds."""

    def row(run: Run) -> str:
        if find_spec(name) is None:
            raise NotRunError(f"{name} is not installed here")
        registered = [point.name for point in entry_points(group=PLUGINS[name])]
        assert "mtpc" in registered, f"this project is not installed beside {name}, which knows {registered} only"
        findings = examine()
        failed = [f"{finding.subject}: {finding.detail}" for finding in findings if not finding.ok]
        assert not failed, "; ".join(failed)
        return f"{len(findings)} findings, all ok"

    return row
