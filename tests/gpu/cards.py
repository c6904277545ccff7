"""The cards: what to find out on a GPU, in the order of what it is worth, each one command of a few minutes.

A card is a list of rows.  Each row runs in a process of its own, so what breaks a device breaks no other row.  On a CPU
some rows of every card run in miniature.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from tests.gpu.running import Run

CORE = "vllm"  # whose environment rows without an engine run in
ON_VLLM = (
    "mtpc", "fastmtp-mimo", "gumiho", "fastmtp-language-auto", "hybrid-copying", "copying", "fastmtp-language-none",
    "mtpc-lora",
)  # fmt: skip
ON_SGLANG = (
    "mtpc", "gumiho", "fastmtp-by-language", "mtpc-adaptive", "fastmtp-adaptive", "mtpc-tree", "gumiho-tree",
    "fastmtp-by-language-tree",
)  # fmt: skip
SETUPS = ("none", "drafter", "drafter-by-batch-size", "n-gram", "drafter-and-lookup")  # of `benchmarks.gpu.speed`
SIZES = ("llama-3.1-8b", "qwen3-8b")  # of `benchmarks.gpu.size`
SIZED = ("none", "mtpc", "fastmtp", "gumiho")


class Row(NamedTuple):
    """One thing to find out.

    engine: whose environment it runs in.  expected: seconds on an H100.  function: "module:name", which takes a `Run`
    and returns what was found in one line, or, called with `arguments`, returns such a function.  on_cpu: whether it is
    one of those that run in miniature.
    """

    engine: str
    expected: float
    function: str
    arguments: tuple[object, ...] = ()
    on_cpu: bool = False

    def run(self, run: Run) -> str:
        """What was found.

        Errors: `NotRunError` where something is missing, anything else where it did not hold.
        """
        module, name = self.function.split(":")
        found = getattr(import_module(module), name)
        row: Callable[[Run], str] = found(*self.arguments) if self.arguments else found
        return row(run)


class Card(NamedTuple):
    """A question, and the rows that answer it.

    seconds: after which it ends.  table: "module:name" of a function that makes a `mtpc.lab.table.Table` of the rows'
    figures, given by row name; None: the rows' own lines say all.
    """

    name: str
    question: str
    seconds: float
    rows: dict[str, Row]
    table: str | None = None


CARDS = (
    Card(
        "load", "do both engines and this project load, and answer once?", 240,
        {
            "sglang/answer": Row("sglang", 120, "tests.gpu.loads:sglang_answers", on_cpu=True),
            "vllm/answer-flash-attention": Row("vllm", 45, "tests.gpu.loads:vllm_answers", ("FLASH_ATTN", "bfloat16")),
            "vllm/answer": Row("vllm", 45, "tests.gpu.loads:vllm_answers", ("TRITON_ATTN", "float32"), on_cpu=True),
            "vllm/doctor": Row("vllm", 20, "tests.gpu.loads:engine_fits", ("vllm",), on_cpu=True),
            "sglang/doctor": Row("sglang", 20, "tests.gpu.loads:engine_fits", ("sglang",), on_cpu=True),
            "vllm/imports": Row("vllm", 25, "tests.gpu.loads:imports", ("vllm",), on_cpu=True),
            "sglang/imports": Row("sglang", 25, "tests.gpu.loads:imports", ("sglang",), on_cpu=True),
        },
    ),
    Card(
        "core", "do the drafts hold on CUDA, without an engine, and what do they cost?", 240,
        {
            "graphs": Row(CORE, 40, "tests.gpu.graphs:replayed", on_cpu=True),
            "waits": Row(CORE, 20, "tests.gpu.graphs:unwaiting"),
            "drawn": Row(CORE, 30, "tests.gpu.exactness:drawn_is_stated", on_cpu=True),
            "kernel": Row(CORE, 30, "tests.gpu.own_rows:kernel_agrees"),
            "cost": Row(CORE, 60, "tests.gpu.cost:costs", on_cpu=True),
            "mechanisms": Row(
                CORE, 20, "benchmarks.gpu.mechanisms:costs", ("draw", "stated", "prompt lookup"), on_cpu=True
            ),
            "sglang/mechanisms": Row("sglang", 30, "benchmarks.gpu.mechanisms:costs", ("verification",), on_cpu=True),
        },
        "benchmarks.gpu.mechanisms:of_rows",
    ),
    Card(
        "vllm", "is output lossless on vLLM's Model Runner V2 with CUDA graphs, and how much memory does it take?", 240,
        {
            "vllm/none": Row("vllm", 35, "tests.gpu.on_vllm:without_drafter"),
            "vllm/graphs-and-eager": Row("vllm", 90, "tests.gpu.on_vllm:graphs_and_eager"),
            **{
                f"vllm/{case}": Row("vllm", 35, "tests.gpu.on_vllm:case_row", (case,), on_cpu=case == "mtpc")
                for case in ON_VLLM
            },
            "vllm/batch-invariant": Row("vllm", 40, "tests.gpu.on_vllm:case_row", ("mtpc", True)),
        },
    ),
    Card(
        "speed", "how many tokens/s does vLLM make without a drafter, with one, and with its own n-gram drafter?", 240,
        {
            f"vllm/speed-{pair}-{setup}": Row(
                "vllm", 60, "benchmarks.gpu.speed:measured", ("vllm", pair, setup),
                on_cpu=(pair, setup) == ("bytes", "drafter"),
            )
            for pair in ("chat", "bytes")
            for setup in SETUPS
        },
        "benchmarks.gpu.speed:table",
    ),
    Card(
        "sglang", "is output lossless on SGLang with CUDA graphs, in chains and trees, and how fast is it?", 240,
        {
            **{
                f"sglang/{case}": Row("sglang", 40, "tests.gpu.on_sglang:case_row", (case,), on_cpu=case == "mtpc-tree")
                for case in ON_SGLANG
            },
            **{
                f"sglang/speed-{pair}-{setup}": Row(
                    "sglang", 40, "benchmarks.gpu.speed:measured", ("sglang", pair, setup)
                )
                for pair in ("chat", "bytes")
                for setup in SETUPS[:4]
            },
            "sglang/deterministic": Row("sglang", 40, "tests.gpu.on_sglang:case_row", ("mtpc", True)),
        },
        "benchmarks.gpu.speed:table",
    ),
    Card(
        "data", "the chat target's answers, for training: 10 million tokens", 540,
        {"vllm/answers": Row("vllm", 520, "benchmarks.gpu.answers:written", on_cpu=True)},
    ),
    Card(
        "training", "drafters of the chat target, trained on these answers for eight minutes each", 540,
        {
            "train/fastmtp": Row(CORE, 520, "benchmarks.gpu.training:trained", ("fastmtp",), on_cpu=True),
            "train/gumiho": Row(CORE, 520, "benchmarks.gpu.training:trained", ("gumiho",)),
            "train/circuit": Row(CORE, 520, "benchmarks.gpu.training:trained", ("circuit",)),
        },
    ),
    Card(
        "size", "what do a step, its drafts and its verification take for targets of 8 billion parameters?", 540,
        {
            f"vllm/{size}-{drafter}": Row(
                "vllm", 60, "benchmarks.gpu.size:measured", (size, drafter),
                on_cpu=(size, drafter) == ("llama-3.1-8b", "gumiho"),
            )
            for size in SIZES
            for drafter in SIZED
        },
        "benchmarks.gpu.size:table",
    ),
)  # fmt: skip
ROWS = {name: row for card in CARDS for name, row in card.rows.items()}


def card_of(word: str) -> Card | None:
    """A card by its number, from 1, or its name."""
    return next((card for number, card in enumerate(CARDS, 1) if word in (str(number), card.name)), None)
