"""SGLang 0.5.21 records the stream of tensors on a CPU, which torch refuses."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

from sglang_cpu import streams


def test_a_tensor_on_a_cpu_takes_no_notice_of_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "record_stream", torch._C.TensorBase.record_stream)
    tensor = torch.ones(1)
    with pytest.raises(RuntimeError):
        tensor.record_stream(torch.cpu.current_stream())
    streams.install(ModuleType("overlap_utils"))
    tensor.record_stream(torch.cpu.current_stream())


def test_elsewhere_it_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[object] = []
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: recorded.append(stream))
    streams.install(ModuleType("overlap_utils"))
    torch.ones(1, device="meta").record_stream("a stream")
    assert recorded == ["a stream"]
