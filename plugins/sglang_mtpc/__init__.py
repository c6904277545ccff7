"""SGLang adapter: serves drafters of every registered draft method, one speculative algorithm for each method.

Usage: ``--speculative-algorithm MTPC --speculative-draft-model-path DIR``.  SGLang's own draft worker runs the
autoregressive part of a drafter.  The parallel part drafts all remaining tokens in one pass.  Each part may be empty.
A text part drafts in the place of both; it reads the tokens of requests.

The adapter names no draft method and contains no mathematics: it translates between SGLang's tensors and `mtpc`.
Every function of SGLang that it uses is a line of the table in `integration_points`.
"""

from __future__ import annotations

from typing import Any


def register() -> None:
    """Register the speculative algorithms of all draft methods with SGLang.

    Entry point of the group ``sglang.srt.plugins``; SGLang calls it once in every process.  SGLang only logs an
    exception raised here.  The names are therefore always registered, and a problem is raised as `MTPCError` when a
    server selects one of them.  Servers without a drafter are not affected.
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
    """Return the worker class for the drafter, by the parts that it has."""
    from sglang_mtpc import served

    if served.reads_text():
        from sglang_mtpc.text_drafts import TextWorker

        return TextWorker
    if not served.has_autoregressive_part():
        from sglang_mtpc.parallel_worker import ParallelWorker

        return ParallelWorker
    from sglang.srt.models.registry import ModelRegistry

    from sglang_mtpc.autoregressive_worker import AutoregressiveWorker

    ModelRegistry.register("sglang_mtpc.models", overwrite=True, strict=True)
    return AutoregressiveWorker
