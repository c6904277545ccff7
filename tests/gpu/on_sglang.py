"""Rows: SGLang on the device, with CUDA graphs and steps that overlap: texts and distributions, chains and trees."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mtpc.lab.statistics.chi_square import REJECT_BELOW
from tests.engine.loop import Tree
from tests.engine.prompts import prompts
from tests.engine_sglang.server import texts
from tests.engine_sglang.test_draft_methods import T1, Case, fastmtp, gumiho, mtpc, p_misstated, p_of, sample, serving
from tests.gpu.running import Run

ASKED, LENGTH, TOGETHER = 12, 48, 8
DETERMINISTIC = ("--enable-deterministic-inference",)
ROWS: dict[str, Callable[[Path], Case]] = {
    "mtpc": mtpc,
    "fastmtp-by-language": fastmtp,
    "gumiho": gumiho,
    "mtpc-tree": lambda folder: mtpc(folder, tree=Tree(11, 3)),
    "fastmtp-by-language-tree": lambda folder: fastmtp(folder, tree=Tree(7, 2)),
    "gumiho-tree": lambda folder: gumiho(folder, tree=Tree(11, 3)),
}


def case_row(name: str, deterministic: bool = False) -> Callable[[Run], str]:
    """Row: a case; of a tree, which states nothing, without the control."""

    def row(run: Run) -> str:
        arguments = (*(DETERMINISTIC if deterministic else ()), *run.sglang_words)
        with serving(ROWS[name](run.folder), run.folder, *arguments) as served:
            asked = prompts(ASKED)
            answers = served.server.generate_all(asked, TOGETHER, max_new_tokens=LENGTH, ignore_eos=True)
            expected = [served.exact.greedy(list(prompt.encode()), LENGTH) for prompt in asked]
            same = sum(a == b for a, b in zip(texts(answers), expected, strict=True))
            accepted = sum(answer["meta_info"]["spec_num_correct_drafts"] for answer in answers)
            prompt = served.case.sampled[0][0]
            honest = p_of(served, prompt, T1, sample(served, prompt, T1))
            found = f"{same} of {ASKED} greedy texts, p = {honest:.2g}, {accepted} drafts accepted"
            misstated = 0.0
            if served.case.tree is None:
                misstated = p_misstated(served, *served.case.sampled[0])
                found += f", misstated {misstated:.0e}"
        assert same == ASKED or "--dtype" in run.sglang, found  # the target's in transformers, in float32
        assert honest > REJECT_BELOW > misstated and accepted, found
        return found

    return row
