"""Rows: SGLang on the device, with CUDA graphs and steps that overlap: texts and distributions, chains and trees."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from mtpc.lab.statistics.chi_square import REJECT_BELOW
from mtpc.lab.statistics.windows import Window
from tests.engine.exact import LENGTH as WINDOW
from tests.engine.loop import Tree
from tests.engine.prompts import prompts
from tests.engine_sglang.server import texts
from tests.engine_sglang.test_adaptive_lengths import adaptive
from tests.engine_sglang.test_draft_methods import (
    SAMPLES,
    T1,
    Case,
    Served,
    fastmtp,
    gumiho,
    mtpc,
    p_misstated,
    p_of,
    sample,
    serving,
)
from tests.engine_sglang.test_draft_methods import (
    TOGETHER as AT_ONCE,
)
from tests.gpu.running import NotRunError, Run

ASKED, LENGTH, TOGETHER = 12, 48, 8
DETERMINISTIC = ("--enable-deterministic-inference",)
# Fewer CUDA graphs than SGLang captures by default, in which all batches of these rows run.
GRAPHS = ("--disable-prefill-cuda-graph", "--cuda-graph-max-bs-decode", "32", "--max-running-requests", "32")
ROWS: dict[str, Callable[[Path], Case]] = {
    "mtpc": mtpc,
    "fastmtp-by-language": fastmtp,
    "gumiho": gumiho,
    "mtpc-adaptive": lambda folder: adaptive(mtpc(folder), folder),
    "fastmtp-adaptive": lambda folder: adaptive(fastmtp(folder), folder),
    "mtpc-tree": lambda folder: mtpc(folder, tree=Tree(11, 3)),
    "fastmtp-by-language-tree": lambda folder: fastmtp(folder, tree=Tree(7, 2)),
    "gumiho-tree": lambda folder: gumiho(folder, tree=Tree(11, 3)),
}


def case_row(name: str, deterministic: bool = False) -> Callable[[Run], str]:
    """Row: a case; of a tree, which states nothing, without the control."""

    def row(run: Run) -> str:
        case = ROWS[name](run.folder)
        if run.on_gpu and case.tree is not None and find_spec("flashinfer") is None:
            raise NotRunError("SGLang compiles its verification of sampled trees from sources of flashinfer")
        arguments = (*(DETERMINISTIC if deterministic else ()), *(GRAPHS if run.on_gpu else ()), *run.sglang_words)
        run.compute_in_float32()
        with serving(case, run.folder, *arguments) as served:
            asked = prompts(ASKED)
            answers = served.server.generate_all(asked, TOGETHER, max_new_tokens=LENGTH, ignore_eos=True)
            expected = [served.exact.greedy(list(prompt.encode()), LENGTH) for prompt in asked]
            same = sum(a == b for a, b in zip(texts(answers), expected, strict=True))
            accepted = sum(answer["meta_info"]["spec_num_correct_drafts"] for answer in answers)
            prompt = served.case.sampled[0][0]
            windows = seeded(served, prompt) if deterministic else sample(served, prompt, T1)
            honest = p_of(served, prompt, T1, windows)
            found = f"{same} of {ASKED} greedy texts, p = {honest:.2g}, {accepted} drafts accepted"
            misstated = 0.0
            if served.case.tree is None and not deterministic:
                misstated = p_misstated(served, *served.case.sampled[0])
                found += f", misstated {misstated:.0e}"
        assert same == ASKED or "--dtype" in run.sglang, found  # as many as in transformers, in float32
        assert honest > REJECT_BELOW > misstated and accepted, found
        return found

    return row


def seeded(served: Served, prompt: str) -> list[Window]:
    """The first tokens of continuations, each with a seed of its own: SGLang's deterministic mode needs one."""
    windows: list[Window] = []
    for first in range(0, SAMPLES, AT_ONCE):
        asked = [
            {"max_new_tokens": WINDOW, "ignore_eos": True, "sampling_seed": seed, **T1._asdict()}
            for seed in range(first, first + AT_ONCE)
        ]
        windows += map(tuple, texts(served.server.generate([prompt] * AT_ONCE, options={"sampling_params": asked})))
    return windows
