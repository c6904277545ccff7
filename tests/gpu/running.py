"""What a row of `make test-gpu` is told, and how it says that it cannot be tried."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch

VLLM, SGLANG = "TEST_GPU_VLLM", "TEST_GPU_SGLANG"  # more arguments of the engines, see `Run`


class NotRunError(Exception):
    """A row that this machine lacks something for: a sentence."""


class Run(NamedTuple):
    """Of a row.

    device: what drafts.  folder: for its files, empty.  vllm: arguments of ``vllm.LLM``, and sglang: those of SGLang's
    command line, that every engine is started with besides.
    """

    device: torch.device
    folder: Path
    vllm: dict[str, Any]
    sglang: tuple[str, ...]

    @classmethod
    def of_environment(cls, device: str, folder: Path) -> Self:
        """With what the variables `VLLM` (JSON) and `SGLANG` (words) say."""
        vllm = json.loads(os.environ.get(VLLM, "{}"))
        return cls(torch.device(device), folder, vllm, tuple(shlex.split(os.environ.get(SGLANG, ""))))

    @property
    def on_gpu(self) -> bool:
        """Whether this is the real thing, not a test of the tests."""
        return self.device.type == "cuda"
