"""The engines that can be measured."""

from __future__ import annotations

from mtpc.bench.engine import Engine
from mtpc.bench.sglang_engine import SGLANG
from mtpc.bench.vllm_engine import VLLM, VLLM_OFFLINE
from mtpc.errors import MTPCError

SERVED = {engine.name: engine for engine in (VLLM, SGLANG)}
OFFLINE = {engine.name: engine for engine in (VLLM_OFFLINE,)}


def find_engine(name: str, offline: bool = False) -> Engine:
    """An engine by its name, behind its server or offline.

    Errors: `MTPCError` for a name that is not known, or an engine that is measured only behind its server.
    """
    if name not in SERVED:
        raise MTPCError(f"unknown engine {name!r}; the engines are {', '.join(SERVED)}.")
    if offline and name not in OFFLINE:
        raise MTPCError(f"{SERVED[name].title} is measured behind its server only; leave out --offline.")
    return OFFLINE[name] if offline else SERVED[name]
