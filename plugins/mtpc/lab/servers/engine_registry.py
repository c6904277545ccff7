"""The supported engines by name."""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple

from mtpc.errors import MTPCError
from mtpc.lab.servers.engine import Engine
from mtpc.lab.servers.sglang_engine import SGLANG
from mtpc.lab.servers.vllm_engine import VLLM, VLLM_OFFLINE


class EngineModes(NamedTuple):
    """The ways to run an engine.

    Attributes:
        served: Behind its HTTP server.
        offline: In one process without a server; None where the engine always runs in several processes.
    """

    served: Engine
    offline: Engine | None = None


ENGINES = {"vllm": EngineModes(VLLM, VLLM_OFFLINE), "sglang": EngineModes(SGLANG)}


def find_engine(name: str, offline: bool = False) -> Engine:
    """Look up an engine.

    Args:
        name: Name of the engine, as ``--engine`` takes it.
        offline: Whether to run it in one process without a server.

    Returns:
        The description of the engine.

    Raises:
        MTPCError: The name is unknown, or the engine cannot run offline.
    """
    if name not in ENGINES:
        raise MTPCError(f"--engine is {name!r}, but the supported engines are {', '.join(ENGINES)}.")
    served, alone = ENGINES[name]
    if not offline:
        return served
    if alone is None:
        raise MTPCError(
            f"--offline does not support --engine {name}: {served.title} always runs in several processes, behind its "
            "server only."
        )
    return alone


def must_be_installed(engine: Engine) -> None:
    """Check that an engine is installed in this environment.

    Args:
        engine: The engine to start.

    Raises:
        MTPCError: It is not installed.
    """
    if find_spec(engine.name) is None:
        raise MTPCError(
            f"{engine.title} is not installed here: choose another --engine, or use the environment that "
            f"`scripts/make_env.sh {engine.name}` makes."
        )
