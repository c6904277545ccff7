"""A function runs once a module has been imported."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from mtpc.serving.after_import import after_import


def test_after_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_late.py").write_text("value = 1")
    monkeypatch.syspath_prepend(tmp_path)
    seen: list[ModuleType] = []
    after_import("imported_late", seen.append)
    assert not seen
    import imported_late  # type: ignore[import-not-found]

    assert seen == [imported_late]
    after_import("imported_late", seen.append)
    assert len(seen) == 2
