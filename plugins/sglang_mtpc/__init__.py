"""SGLang adapter: serves MTPC drafters as ``--speculative-algorithm MTPC``, FastMTP drafters as ``FASTMTP``.

It holds no mathematics: it translates between SGLang's tensors and `mtpc.drafter.Drafter`, and gives SGLang's own draft
worker the layer of `mtpc.fastmtp`.  Every place where it touches SGLang is a line of the table in `touch_points`.
"""

from __future__ import annotations

from typing import Any

NAME = "MTPC"
FASTMTP = "FASTMTP"


def register() -> None:
    """Entry point of the group ``sglang.srt.plugins``, called once in every process of SGLang.

    SGLang only logs what goes wrong here.  So the algorithms' names are registered in any case, and a problem is raised
    when one is asked for: it then reaches the user, and nobody else.
    """
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
    from sglang.srt.speculative.spec_registry import CustomSpecAlgo, get_spec

    if get_spec(NAME) is not None:
        return
    problem: str | None = None
    kinds: dict[str, type[CustomSpecAlgo]] = dict.fromkeys((NAME, FASTMTP), CustomSpecAlgo)
    try:
        from sglang_mtpc import algorithm, start_up, touch_points

        problem = next(touch_points.problems(touch_points.START), None)
        if problem is None:
            start_up.install()
            kinds = {NAME: algorithm.MTPCAlgorithm, FASTMTP: algorithm.FastMTPAlgorithm}
    except Exception as error:
        problem = f"MTPC could not be registered with SGLang: {type(error).__name__}: {error}."

    def refuse(server_args: Any) -> None:
        from mtpc.errors import MTPCError, show_sentences

        if problem is not None:
            show_sentences()
            raise MTPCError(problem)

    for name, kind in kinds.items():
        make = SpeculativeAlgorithm.register(name, supports_overlap=True, validate_server_args=refuse, spec_class=kind)
        make(_mtpc_worker if name == NAME else _fastmtp_worker)


def _mtpc_worker(server_args: Any) -> type:
    from sglang_mtpc.worker import MTPCWorker

    return MTPCWorker


def _fastmtp_worker(server_args: Any) -> type:
    from sglang.srt.models.registry import ModelRegistry

    from sglang_mtpc.fastmtp_worker import FastMTPWorker

    ModelRegistry.register("sglang_mtpc.models", overwrite=True, strict=True)
    return FastMTPWorker
