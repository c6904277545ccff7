"""SGLang adapter: serves the drafters of every draft method in the registry, each under its draft method's algorithm.

``--speculative-algorithm MTPC --speculative-draft-model-path DIR``.  A drafter has an autoregressive part, which SGLang's own
draft worker runs, and a parallel part, drafted in one shot after it; each may be empty, and nothing here knows a draft method.
It holds no mathematics: it translates between SGLang's tensors and `mtpc`.  Every place where it touches SGLang is a
line of the table in `integration_points`.
"""

from __future__ import annotations

from typing import Any


def register() -> None:
    """Entry point of the group ``sglang.srt.plugins``, called once in every process of SGLang.

    SGLang only logs what goes wrong here.  So the algorithms' names are registered in any case, and a problem is raised
    when one is asked for: it then reaches the user, and nobody else.
    """
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
    from sglang.srt.speculative.spec_registry import CustomSpecAlgo, get_spec

    from mtpc.methods import draft_methods

    names = [method.algorithm for method in draft_methods()]
    if get_spec(names[0]) is not None:
        return
    problem: str | None = None
    kind: type[CustomSpecAlgo] = CustomSpecAlgo
    try:
        from sglang_mtpc import integration_points, start_up

        problem = next(integration_points.problems({integration_points.START}), None)
        if problem is None:
            from sglang_mtpc.algorithm import DrafterAlgorithm

            start_up.install()
            kind = DrafterAlgorithm
    except Exception as error:
        reason = " ".join(str(error).splitlines())
        problem = f"MTPC could not be registered with SGLang: {type(error).__name__}: {reason}."

    def refuse(server_args: Any) -> None:
        from mtpc.errors import MTPCError, show_messages

        if problem is not None:
            show_messages()
            raise MTPCError(problem)

    for name in names:
        make = SpeculativeAlgorithm.register(name, supports_overlap=True, validate_server_args=refuse, spec_class=kind)
        make(_worker)


def _worker(server_args: Any) -> type:
    """The class of the worker that drafts, by whether the drafter has an autoregressive part."""
    from sglang_mtpc import served

    if not served.has_autoregressive_part():
        from sglang_mtpc.parallel_worker import ParallelWorker

        return ParallelWorker
    from sglang.srt.models.registry import ModelRegistry

    from sglang_mtpc.autoregressive_worker import AutoregressiveWorker

    ModelRegistry.register("sglang_mtpc.models", overwrite=True, strict=True)
    return AutoregressiveWorker
