"""Resolves SGLang's arguments, or sees them refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sglang.srt.arg_groups.overrides import resolving_view
from sglang.srt.server_args import prepare_server_args

from mtpc.errors import MTPCError


def resolved(target: Path, *arguments: str, algorithm: str = "MTPC") -> Any:
    """What every way of starting SGLang does first."""
    return resolving_view(server_args_of(target, *arguments, algorithm=algorithm))


def server_args_of(target: Path, *arguments: str, algorithm: str) -> Any:
    """SGLang's server arguments, resolved."""
    fixed = ("--model-path", str(target), "--device", "cpu", "--speculative-algorithm", algorithm)
    server_args = prepare_server_args([*fixed, *arguments])
    server_args.resolve_once()
    return server_args


def refused(part: str, target: Path, *arguments: str, **options: str) -> None:
    """Resolving ends in one sentence with this part."""
    with pytest.raises(MTPCError) as caught:
        resolved(target, *arguments, **options)
    message = str(caught.value)
    assert part in message, message
    assert "\n" not in message
    assert message.endswith(".")
    assert len(message) < 600
