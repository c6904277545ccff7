"""What stands in for Triton kernels, against loops over rows."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

from sglang_cpu import kernels


def test_the_largest_of_each_row() -> None:
    scores = torch.randn(5, 300, generator=torch.Generator().manual_seed(0))
    rows = scores.tolist()
    assert kernels.row_argmax(scores).tolist() == [row.index(max(row)) for row in rows]


@pytest.mark.parametrize("with_states", [True, False])
def test_rows_of_every_buffer(with_states: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    buffers = (
        torch.rand(6, 2, generator=generator),
        torch.randint(9, (6, 2), generator=generator),
        torch.randint(9, (6,), generator=generator),
        torch.rand(6, 4, generator=generator) if with_states else None,
    )
    wanted = [4, 0, 4]
    for found, buffer in zip(kernels.gather_spec_extras(torch.tensor(wanted), *buffers), buffers, strict=True):
        assert (found is None) == (buffer is None)
        if found is not None and buffer is not None:
            assert found.tolist() == [buffer.tolist()[row] for row in wanted]


@pytest.mark.parametrize("name", kernels.FUNCTIONS)
def test_each_takes_the_place_of_the_function_of_its_module(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType(f"sglang.kernels.{name}")
    kernels.install(module)
    assert getattr(module, name) is kernels.FUNCTIONS[name]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    untouched = ModuleType(f"sglang.kernels.{name}")
    kernels.install(untouched)
    assert not hasattr(untouched, name)
