"""Another platform than that of the tests."""

from __future__ import annotations

import pytest
from vllm.platforms.cpu import CpuPlatform


def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let vLLM choose what it chooses on a GPU: there is Triton, and steps overlap unless a setting forbids it."""
    monkeypatch.setattr("vllm.triton_utils.HAS_TRITON", True)
    monkeypatch.setattr("vllm.config.vllm.HAS_TRITON", True)
    monkeypatch.setattr(CpuPlatform, "is_cpu", lambda self: False)
    monkeypatch.setattr(CpuPlatform, "check_and_update_config", classmethod(lambda cls, vllm_config: None))
