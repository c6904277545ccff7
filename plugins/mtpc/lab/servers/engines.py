"""The engines that are known, by their names."""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple

from mtpc.errors import MTPCError
from mtpc.lab.servers.engine import Engine
from mtpc.lab.servers.sglang_engine import SGLANG
from mtpc.lab.servers.vllm_engine import VLLM, VLLM_OFFLINE


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


def must_be_installed(engine: Engine) -> None:
    """Errors: `MTPCError` where the engine is not installed beside this package."""
    if find_spec(engine.name) is None:
        raise MTPCError(
            f"{engine.title} is not installed here: choose another --engine, or use the environment that "
            f"`scripts/make_env.sh {engine.name}` makes."
        )
