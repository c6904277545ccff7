"""Rows: vLLM's Model Runner V2 on the device, with CUDA graphs: texts, distributions, waits and memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mtpc.statistics.chi_square import REJECT_BELOW
from tests.engine.conftest import Models
from tests.engine.exact import Reference
from tests.engine.test_runner_v2 import CASES, PROMPTS, Case, p_of, said_by, session
from tests.gpu.running import CAPTURED, Run
from tests.support.random_fastmtp import make_fastmtp, make_vocabulary
from tests.support.random_models import make_target

INVARIANT = {"VLLM_BATCH_INVARIANT": "1"}
LENGTH = 48  # tokens of the byte model's texts


def arguments(run: Run, graphs: bool = True, compiled: bool = False) -> list[str]:
    """Of `tests.engine.v2_session`; on a CPU its graphs are replayed ones.

    compiled: whether vLLM compiles the target as well, which takes longer than all else.
    """
    replayed = "--graphs" if run.on_gpu else "--replay"
    captured = {"compilation_config": CAPTURED} if run.on_gpu and graphs and not compiled else {}
    return [*([replayed] if graphs else []), "--engine", json.dumps(captured | run.vllm)]


def environment(run: Run) -> Mapping[str, str]:
    """On a CPU vLLM's kernels are interpreted."""
    return {} if run.on_gpu else {"TRITON_INTERPRET": "1"}


def exactly(run: Run) -> bool:
    """Whether greedy texts must be the target's in transformers: in float32, unless another type was asked for."""
    return "dtype" not in run.vllm


def judged(case: Case, said: dict[str, Any], exact_texts: bool = True) -> str:
    """A case's session: greedy texts, the joint of the first tokens with its control, and nothing that waits.

    One without samples is judged by the rest.
    """
    exact, asked = Reference(case.plain), case.prompts
    same = sum(exact.greedy(prompt, case.length) == text for prompt, text in zip(asked, said["greedy"], strict=True))
    honest, misstated, drawn = 1.0, 0.0, "nothing sampled"
    if case.samples:
        honest, misstated = p_of(case, said["samples"]), p_of(case, said["misstated"])
        drawn = f"p = {honest:.2g}, misstated {misstated:.0e}"
    accepted = f"{said['accepted']:.0f} of {said['drafted']:.0f} drafts accepted"
    found = f"{same} of {len(asked)} greedy texts, {drawn}, {accepted}"
    waits = said["waits"]
    if waits:
        found += f", waits in {', '.join(waits)}"
    assert same == len(asked) or not exact_texts, found
    assert honest > REJECT_BELOW > misstated and said["accepted"] > 0 and not waits, found
    return found


def fastmtp(settings: dict[str, Any]) -> Callable[[Path], Case]:
    """A layer that drafts by language, with these settings of the draft vocabulary."""

    def made(folder: Path) -> Case:
        target = make_target(folder / "target", seed=3)
        drafter = make_fastmtp(folder / "drafter", target)
        make_vocabulary(drafter / "vocabulary.json", 258)
        return Case(Models(target, drafter, 3), target, 12, 200, settings)

    return made


ROWS: dict[str, Callable[[Path], Case]] = {
    **{name.replace(", ", "-").lower(): made for name, made in CASES.items()},
    "fastmtp-language-auto": fastmtp({"size": 120, "language": "auto"}),
    "fastmtp-language-letters": fastmtp({"size": 120, "language": "letters"}),
    "fastmtp-language-none": fastmtp({"language": "none"}),
}


def graphs_and_eager(run: Run) -> str:
    """Row: what ships, with vLLM's default ``max_num_seqs``: the same greedy texts with graphs and without them."""
    shipped = Models(run.paths.weights / "byte-target", run.paths.weights / "byte-mtpc-hmm-n8", 7)
    asked, expected = [*PROMPTS, PROMPTS[0] * 5], Reference(shipped.target)
    texts, told = [expected.greedy(prompt, LENGTH) for prompt in asked], []
    for name, graphs in (("graphs", True), ("eager", False)):
        more = (
            *arguments(run, graphs, compiled=True),
            "--greedy-length",
            str(LENGTH),
            "--max-num-seqs",
            "0" if run.on_gpu else "8",
        )
        said = session(shipped, asked, *more, variables=environment(run))
        same = sum(a == b for a, b in zip(texts, said["greedy"], strict=True))
        memory = "".join(f", {size} {what}" for what, size in said["memory"].items())
        told.append(f"{name}: {same} of {len(asked)} texts, {said['accepted']:.0f} accepted{memory}")
        assert same == len(asked) or not exactly(run), told
        assert said["accepted"] > 0 and not said["waits"], f"{told}, waits in {said['waits']}"
    return "; ".join(told)


def case_row(name: str, invariant: bool = False) -> Callable[[Run], str]:
    """Row: a case; on a CPU, where kernels are interpreted, without samples, which `tests.engine.test_runner_v2` takes.

    invariant: whether vLLM computes a request as if it were alone.
    """

    def row(run: Run) -> str:
        case = ROWS[name](run.folder)._replace(samples=3000 if run.on_gpu else 0)
        variables = {**environment(run), **(INVARIANT if invariant else {})}
        return judged(case, said_by(case, run.folder, *arguments(run), variables=variables), exactly(run))

    return row
