"""The engines that can be measured."""

from __future__ import annotations

from typing import NamedTuple

from mtpc.bench.engine import Engine
from mtpc.bench.sglang_engine import SGLANG
from mtpc.bench.vllm_engine import VLLM, VLLM_OFFLINE
from mtpc.errors import MTPCError


class Ways(NamedTuple):
    """How an engine can be measured: behind its server, and alone in a process where it runs in one."""

    served: Engine
    offline: Engine | None = None


ENGINES = {"vllm": Ways(VLLM, VLLM_OFFLINE), "sglang": Ways(SGLANG)}


def find_engine(name: str, offline: bool = False) -> Engine:
    """An engine by its name, behind its server or offline.

    Errors: `MTPCError` for a name that is not known, or an engine that is measured only behind its server.
    """
    if name not in ENGINES:
        raise MTPCError(f"unknown engine {name!r}; the engines are {', '.join(ENGINES)}.")
    served, alone = ENGINES[name]
    if not offline:
        return served
    if alone is None:
        raise MTPCError(f"{served.title} always runs in several processes and runs behind its server only.")
    return alone
