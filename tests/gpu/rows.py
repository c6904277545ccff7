"""What `make test-gpu` tries, in this order: what costs least and would spoil all the rest comes first."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from tests.gpu.running import Run

MINUTE = 60.0
CORE = "vllm"  # whose environment rows without an engine are tried in
ON_VLLM = (
    "mtpc", "gumiho", "hybrid-copying", "copying", "fastmtp-mimo",
    "fastmtp-language-auto", "fastmtp-language-letters", "fastmtp-language-none",
)  # fmt: skip
ON_SGLANG = ("mtpc", "fastmtp-by-language", "gumiho", "mtpc-tree", "fastmtp-by-language-tree", "gumiho-tree")


class Row(NamedTuple):
    """A row: in whose environment, for how many seconds at most, and what finds out: a function of a module here.

    arguments: what makes that function, where it is made of something.
    """

    engine: str
    seconds: float
    module: str
    function: str
    arguments: tuple[object, ...] = ()

    def run(self, run: Run) -> str:
        """What was found.

        Errors: `NotRunError` where something is missing, anything else where it did not hold.
        """
        found = getattr(import_module(f"tests.gpu.{self.module}"), self.function)
        row: Callable[[Run], str] = found(*self.arguments) if self.arguments else found
        return row(run)


ROWS = {
    "graphs": Row(CORE, 3 * MINUTE, "graphs", "replayed"),
    "waits": Row(CORE, 2 * MINUTE, "graphs", "unwaiting"),
    "drawn": Row(CORE, 3 * MINUTE, "exactness", "drawn_is_stated"),
    "kernel": Row(CORE, 2 * MINUTE, "own_rows", "kernel_agrees"),
    "cost": Row(CORE, 3 * MINUTE, "cost", "costs"),
    "vllm/doctor": Row("vllm", 3 * MINUTE, "doctor", "engine_fits", ("vllm",)),
    "vllm/graphs-and-eager": Row("vllm", 6 * MINUTE, "on_vllm", "graphs_and_eager"),
    **{f"vllm/{case}": Row("vllm", 5 * MINUTE, "on_vllm", "case_row", (case,)) for case in ON_VLLM},
    "sglang/doctor": Row("sglang", 3 * MINUTE, "doctor", "engine_fits", ("sglang",)),
    **{f"sglang/{case}": Row("sglang", 5 * MINUTE, "on_sglang", "case_row", (case,)) for case in ON_SGLANG},
    "vllm/batch-invariant": Row("vllm", 5 * MINUTE, "on_vllm", "case_row", ("mtpc", True)),
    "sglang/deterministic": Row("sglang", 5 * MINUTE, "on_sglang", "case_row", ("mtpc", True)),
    **{
        f"{engine}/speed-{pair}": Row(engine, 9 * MINUTE, "speed", "measured", (engine, pair))
        for pair in ("bytes", "chat")
        for engine in ("vllm", "sglang")
    },
}
