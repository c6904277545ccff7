"""When the CPU shim is active, and when it is not."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import sglang_cpu
from sglang_cpu import image_operators

VARIABLE = "SGLANG_USE_CPU_ENGINE"


@pytest.fixture
def interpreter(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The import system as where nothing is activated; put back afterwards."""
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if "sglang_cpu" not in entry])
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "path_importer_cache", {})
    for name in [name for name in sys.modules if name.split(".")[0] in ("sgl_kernel", "torchvision")]:
        monkeypatch.delitem(sys.modules, name)
    sglang_cpu.activate.cache_clear()
    yield monkeypatch
    sglang_cpu.activate.cache_clear()


def test_it_takes_the_place_of_the_kernels(interpreter: pytest.MonkeyPatch) -> None:
    interpreter.delenv(VARIABLE, raising=False)
    sglang_cpu.activate()
    kernels = importlib.import_module("sgl_kernel")
    assert all(callable(getattr(kernels, name)) for name in kernels.__all__)
    assert callable(importlib.import_module("sgl_kernel.speculative").reconstruct_indices_from_tree_mask)


def test_a_second_activation_does_nothing(interpreter: pytest.MonkeyPatch) -> None:
    interpreter.setenv(VARIABLE, "1")
    sglang_cpu.activate()
    before = list(sys.path), list(sys.meta_path)
    sglang_cpu.activate()
    assert (sys.path, sys.meta_path) == before


def test_real_kernels_go_first(interpreter: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "sgl_kernel.py").touch()
    interpreter.syspath_prepend(tmp_path)
    interpreter.setenv(VARIABLE, "1")
    sglang_cpu.activate()
    assert importlib.import_module("sgl_kernel").__file__ == str(tmp_path / "sgl_kernel.py")


def test_not_for_processes_that_want_no_cpu_engine(interpreter: pytest.MonkeyPatch) -> None:
    interpreter.setenv(VARIABLE, "0")
    sglang_cpu.activate()
    assert find_spec("sgl_kernel") is None


def test_not_where_a_gpu_is(interpreter: pytest.MonkeyPatch) -> None:
    interpreter.setenv(VARIABLE, "1")
    interpreter.setattr(torch.cuda, "is_available", lambda: True)
    sglang_cpu.activate()
    with pytest.raises(ImportError, match="without a GPU"):
        importlib.import_module("sgl_kernel")


def test_image_operators_are_declared_where_they_did_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = []
    monkeypatch.setattr(torch.library, "define", lambda name, schema: declared.append(name))
    image_operators.install(SimpleNamespace(_has_ops=lambda: True))
    assert declared == []
    image_operators.install(SimpleNamespace(_has_ops=lambda: False))
    assert declared == ["torchvision::nms", "torchvision::qnms"]
