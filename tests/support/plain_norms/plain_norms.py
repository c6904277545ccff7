"""A plugin for tests on a GPU: SGLang's norms in plain torch, whose kernels there take no float32."""

from __future__ import annotations

from types import ModuleType

from mtpc.serving.after_import import after_import


def register() -> None:
    """Entry point of ``sglang.srt.plugins``."""
    after_import("sglang.srt.layers.layernorm", in_torch)


def in_torch(module: ModuleType) -> None:
    """Let ``RMSNorm`` compute on a GPU as it does where there is no kernel."""
    module.RMSNorm.forward_cuda = module.RMSNorm.forward_native
