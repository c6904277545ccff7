"""Rows: vLLM's Model Runner V2 on the device, with CUDA graphs: texts, distributions, waits and memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mtpc.lab.statistics.chi_square import REJECT_BELOW
from tests.engine.conftest import Models
from tests.engine.exact import Reference
from tests.engine.test_runner_v2 import CASES, PROMPTS, SAMPLING, Case, drafts_of, loop_of, p_of, run_case, session
from tests.gpu.running import BREAKABLE, CAPTURED, PIECEWISE, Run
from tests.support.random_fastmtp import make_fastmtp, make_vocabulary
from tests.support.random_models import make_target

INVARIANT = {"VLLM_BATCH_INVARIANT": "1"}
LENGTH = 48  # tokens of the byte model's texts
SAMPLES = 3000  # on a GPU; on a CPU, where kernels are interpreted, `tests.engine.test_runner_v2` takes some
ALIKE = 0.95  # of the drafts of greedy texts, at least: rounding decides between tokens now and then


def arguments(run: Run, graphs: bool = True, kinds: Mapping[str, Any] = CAPTURED) -> list[str]:
    """Of `tests.engine.v2_session`; on a CPU its graphs are replayed ones."""
    replayed = "--graphs" if run.on_gpu else "--replay"
    captured = {"compilation_config": kinds} if run.on_gpu and graphs else {}
    return [*([replayed] if graphs else []), "--engine", json.dumps(captured | run.vllm)]


def environment(run: Run) -> Mapping[str, str]:
    """On a CPU vLLM's kernels are interpreted."""
    return {} if run.on_gpu else {"TRITON_INTERPRET": "1"}


def exactly(run: Run) -> bool:
    """Whether greedy texts must be the target's in transformers: in float32, unless another type was asked for."""
    return "dtype" not in run.vllm


def same_texts(case: Case, output: dict[str, Any]) -> int:
    """How many of a session's greedy texts are the target's."""
    exact = Reference(case.plain)
    texts = (exact.greedy(prompt, case.length) for prompt in case.prompts)
    return sum(a == b for a, b in zip(texts, output["greedy"], strict=True))


def judged(case: Case, output: dict[str, Any], file: Path, exact_texts: bool = True) -> str:
    """A case's session: greedy texts and their drafts, the joint of the first tokens with its control, and waits.

    One without samples is judged by the rest.  file: of the drafts.
    """
    same, asked = same_texts(case, output), case.prompts
    expected, recorded = drafts_of(file, case, loop_of(case))
    alike = (expected & recorded).total() / expected.total()
    honest, misstated, drawn = 1.0, 0.0, "nothing sampled"
    if case.samples:
        honest, misstated = p_of(case, output["samples"]), p_of(case, output["misstated"])
        drawn = f"p = {honest:.2g}, misstated {misstated:.0e}"
    accepted = f"{output['accepted']:.0f} of {output['drafted']:.0f} drafts accepted"
    found = f"{same} of {len(asked)} greedy texts, {alike:.0%} of their drafts the plain loop's, {drawn}, {accepted}"
    waits = output["waits"]
    if waits:
        found += f", waits in {', '.join(waits)}"
    assert (same == len(asked) and alike >= ALIKE) or not exact_texts, found
    assert honest > REJECT_BELOW > misstated and output["accepted"] > 0 and not waits, found
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
    texts, findings = [expected.greedy(prompt, LENGTH) for prompt in asked], []
    for name, graphs in (("graphs", True), ("eager", False)):
        more = (
            *arguments(run, graphs, PIECEWISE),
            "--greedy-length",
            str(LENGTH),
            "--max-num-seqs",
            "0" if run.on_gpu else "8",
        )
        output = session(shipped, asked, *more, variables={**environment(run), **BREAKABLE})
        same = sum(a == b for a, b in zip(texts, output["greedy"], strict=True))
        memory = "".join(f", {size} {what}" for what, size in output["memory"].items())
        findings.append(f"{name}: {same} of {len(asked)} texts, {output['accepted']:.0f} accepted{memory}")
        assert same == len(asked) or not exactly(run), findings
        assert output["accepted"] > 0 and not output["waits"], f"{findings}, waits in {output['waits']}"
    return "; ".join(findings)


def without_drafter(run: Run) -> str:
    """Row: the same of vLLM alone, without which the other rows tell little."""
    case = ROWS["mtpc"](run.folder)
    words = ("--plain", "--greedy-length", str(case.length), "--temperature", str(SAMPLING.temperature))
    samples = ("--samples", str(SAMPLES)) if run.on_gpu else ()
    output = session(case.models, case.prompts, *words, *samples, *arguments(run), variables=environment(run))
    same, honest = same_texts(case, output), p_of(case, output["samples"]) if samples else 1.0
    found = f"{same} of {len(case.prompts)} greedy texts, " + (f"p = {honest:.2g}" if samples else "nothing sampled")
    assert (same == len(case.prompts) or not exactly(run)) and honest > REJECT_BELOW, found
    return found


def case_row(name: str, invariant: bool = False) -> Callable[[Run], str]:
    """Row: a case.

    invariant: whether vLLM computes a request as if it were alone.
    """

    def row(run: Run) -> str:
        case, file = ROWS[name](run.folder)._replace(samples=SAMPLES if run.on_gpu else 0), run.folder / "drafts"
        variables = {**environment(run), **(INVARIANT if invariant else {})}
        output = run_case(case, run.folder, "--record", str(file), *arguments(run), variables=variables)
        return judged(case, output, file, exactly(run))

    return row
