"""SGLang adapter: serves MTPC drafters as ``--speculative-algorithm MTPC``.

It holds no mathematics: it translates between SGLang's tensors and `mtpc.drafter.Drafter`.  Every place where it
touches SGLang is a line of the table in `touch_points`.
"""

from __future__ import annotations

from typing import Any

NAME = "MTPC"


def register() -> None:
    """Entry point of the group ``sglang.srt.plugins``, called once in every process of SGLang.

    SGLang only logs what goes wrong here.  So the algorithm's name is registered in any case, and a problem is raised
    when the name is asked for: it then reaches the user, and nobody else.
    """
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
    from sglang.srt.speculative.spec_registry import CustomSpecAlgo, get_spec

    if get_spec(NAME) is not None:
        return
    problem: str | None = None
    kind: type[CustomSpecAlgo] = CustomSpecAlgo
    try:
        from sglang_mtpc import algorithm, start_up, touch_points

        problem = next(touch_points.problems(touch_points.START), None)
        if problem is None:
            start_up.install()
            kind = algorithm.MTPCAlgorithm
    except Exception as error:
        problem = f"MTPC could not be registered with SGLang: {type(error).__name__}: {error}."

    def refuse(server_args: Any) -> None:
        from mtpc.errors import MTPCError, show_sentences

        if problem is not None:
            show_sentences()
            raise MTPCError(problem)

    def worker(server_args: Any) -> type:
        from sglang_mtpc.worker import MTPCWorker

        return MTPCWorker

    SpeculativeAlgorithm.register(NAME, supports_overlap=True, validate_server_args=refuse, spec_class=kind)(worker)
