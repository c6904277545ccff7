"""The half of a Triton backend that describes the device."""

from __future__ import annotations

import os
from typing import Any, NoReturn

import torch
from triton.backends import driver
from triton.backends.compiler import GPUTarget


class InterpretedDriver(driver.DriverBase):
    """One device, the CPU, without streams."""

    @classmethod
    def is_active(cls) -> bool:
        return os.environ.get("TRITON_INTERPRET") == "1"

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cpu", 0, 1)

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: Any = None) -> int:
        return 0

    def get_benchmarker(self) -> NoReturn:
        raise RuntimeError("an interpreter is not worth timing")
