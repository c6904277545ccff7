"""Model Runner V2 on a CPU, through Triton's interpreter, with drafters of every draft method.

Drafts must equal those of the reference implementation.  Greedy outputs and the output distribution must be the
target's.  As a control, a drafter misstates its distributions.  A session takes half a minute to start, so it serves
all tests of a drafter.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mtpc.lab.statistics.chi_square import REJECT_BELOW
from mtpc.methods import draft_methods, method_of
from mtpc.vocabulary.settings import open_vocabularies
from tests.engine.conftest import Models
from tests.engine.exact import Reference, Sampling, cells, p_value
from tests.engine.loop import Loop
from tests.engine.prompts import prompts
from tests.support.often import each_of
from tests.support.random_fastmtp import make_fastmtp, make_vocabulary
from tests.support.random_gumiho import make_gumiho
from tests.support.random_hybrid import make_between, make_hybrid, make_subset, register_method
from tests.support.random_lora import make_lora
from tests.support.random_medusa import make_medusa
from tests.support.random_mimo import make_mimo
from tests.support.random_models import (
    make_byte_circuit,
    make_copying,
    make_drafter,
    make_target,
    make_target_leaves,
)
from tests.support.random_qwen3 import make_qwen3

pytestmark = pytest.mark.engine
ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests" / "support"
SAMPLING = Sampling(temperature=0.5)  # few likely windows, so that few samples tell much
V2_ON_CPU = str(SUPPORT / "v2_on_cpu")
FOLDERS = [str(ROOT), str(SUPPORT / "hybrid")]
INTERPRETED = {"TRITON_INTERPRET": "1"}
ENVIRONMENT = {
    "VLLM_USE_V2_MODEL_RUNNER": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}
PROMPTS = [list(prompt.encode())[:20] for prompt in prompts(6)]


def session(
    models: Models, prompts: list[list[int]], *arguments: str, variables: Mapping[str, str] = INTERPRETED
) -> dict[str, Any]:
    """What `v2_session.py` prints; variables: of its environment, besides."""
    pytest.importorskip("triton", reason="needs Triton's interpreter")
    names = [str(models.target), str(models.drafter), json.dumps(prompts), "--drafts", str(models.drafts)]
    path = [*FOLDERS, *([V2_ON_CPU] if INTERPRETED.items() <= variables.items() else [])]
    path += filter(None, [os.environ.get("PYTHONPATH")])
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.v2_session", *names, *arguments],
        env=os.environ | ENVIRONMENT | variables | {"PYTHONPATH": os.pathsep.join(path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    (output,) = (line for line in done.stdout.splitlines() if line.startswith("{"))  # engines print as well
    return json.loads(output)  # type: ignore[no-any-return]


class Case(NamedTuple):
    """What is served, and how much of it is enough."""

    models: Models
    plain: Path  # the target for transformers
    length: int  # of the greedy texts
    samples: int
    vocabulary: dict[str, Any] | None = None  # settings of the draft vocabulary
    prompts: list[list[int]] = PROMPTS
    copies: bool = False

    @property
    def by_union(self) -> bool:
        """Whether all requests draft from the union vocabulary: those of a parallel part alone."""
        config = method_of(self.models.drafter).read_config(self.models.drafter)
        return self.vocabulary is not None and config.autoregressive is None


def mtpc(folder: Path) -> Case:
    """A circuit, of which all of the window's graphs are replayed."""
    target = make_target(folder / "target")
    return Case(Models(target, make_drafter(folder / "drafter", target), 5), target, 16, 300)


def through_head(folder: Path) -> Case:
    """A circuit through the target's head, drafting from the union vocabulary, with prompt lookup."""
    target = make_target(folder / "target")
    drafter = make_target_leaves(folder / "drafter", target)
    make_vocabulary(drafter / "vocabulary.json", 258)
    return Case(Models(target, drafter, 4), target, 12, 200, {"size": 60}, foretelling(target), copies=True)


def byte_circuit(folder: Path) -> Case:
    """A circuit over the bytes of the target's tokens."""
    target = make_target(folder / "target", seed=3)
    return Case(Models(target, make_byte_circuit(folder / "drafter", target), 4), target, 12, 200)


def mimo(folder: Path) -> Case:
    """A layer that drafts three times, from the whole vocabulary: a MiMo checkpoint's after `mtpc convert`.

    Its target hands over its states before the final norm.
    """
    made = make_mimo(folder)
    return Case(Models(made.target, made.drafter, 3), made.plain, 12, 200)


def qwen3_moe(folder: Path) -> Case:
    """A layer of kind qwen3, dense behind a mixture of experts."""
    target = make_qwen3(folder / "target", experts=True)
    return Case(Models(target, make_fastmtp(folder / "drafter", target), 3), target, 12, 400)


def gumiho(folder: Path) -> Case:
    """Two layers without norms that draft two tokens, and joint heads behind them."""
    target, heads = make_target(folder / "target"), {"positions": 2, "blocks": 1, "circuit": "hmm", "rank": 3}
    drafter = make_gumiho(folder / "drafter", target, heads, num_hidden_layers=2, normed=False)
    return Case(Models(target, drafter, 4), target, 12, 200)


def medusa(folder: Path) -> Case:
    """Four of five published heads."""
    target = make_target(folder / "target")
    return Case(Models(target, make_medusa(folder / "drafter", target, "vllm"), 4), target, 12, 200)


def hybrid(folder: Path) -> Case:
    """A layer that drafts from the vocabulary of each language, a circuit, and prompt lookup."""
    target = make_target(folder / "target")
    drafter = make_hybrid(folder / "drafter", target)
    make_vocabulary(drafter / "vocabulary.json", 258)
    return Case(Models(target, drafter, 4), target, 12, 200, {"size": 120}, foretelling(target), copies=True)


def copying_alone(folder: Path) -> Case:
    """Neither part: what is drafted is copied, or token 0."""
    target = make_target(folder / "target")
    return Case(
        Models(target, make_copying(folder / "drafter", target), 4), target, 12, 200, None, foretelling(target), True
    )


def between(folder: Path) -> Case:
    """A layer that reads a state between the target's layers, and a circuit."""
    target = make_target(folder / "target")
    return Case(Models(target, make_between(folder / "drafter", target), 4), target, 12, 200)


def lora(folder: Path) -> Case:
    """A circuit behind the target's last two of three layers with adapters."""
    target = make_target(folder / "target", layers=3)
    return Case(Models(target, make_lora(folder / "drafter", target, layers=2), 4), target, 12, 200)


def subset(folder: Path) -> Case:
    """Layers and heads behind them with an embedding and an output head of their own, of half of the tokens."""
    target = make_target(folder / "target")
    return Case(Models(target, make_subset(folder / "drafter", target), 5), target, 12, 200)


def foretelling(target: Path) -> list[list[int]]:
    """Prompts in which the tokens that are likely to come next have been before: they are there to be copied."""
    exact, prompts = Reference(target), [prompt[:10] for prompt in PROMPTS]
    return [exact.next_probs([prompt], SAMPLING)[0].topk(10).indices.tolist() + prompt for prompt in prompts]


CASES = {
    "mtpc": mtpc,
    "mtpc, through the head, copying": through_head,
    "bytecircuit": byte_circuit,
    "fastmtp, MiMo": mimo,
    "fastmtp, Qwen3-MoE": qwen3_moe,
    "gumiho": gumiho,
    "medusa": medusa,
    "hybrid, copying": hybrid,
    "copying": copying_alone,
    "between": between,
    "mtpc, LoRA": lora,
    "subset": subset,
}


class CaseResult(NamedTuple):
    """The output of a case's session, and the file of its drafts."""

    case: Case
    output: dict[str, Any]
    drafts: Path


def run_case(case: Case, folder: Path, *arguments: str, variables: Mapping[str, str] = INTERPRETED) -> dict[str, Any]:
    """Greedy texts, samples, and samples of a drafter that misstates, all of one session."""
    sampled = ("--samples", str(case.samples), "--temperature", str(SAMPLING.temperature))
    additional = ("--additional", json.dumps({"mtpc": {"copy": case.copies} | (case.vocabulary or {})}))
    asked = ("--greedy-length", str(case.length), "--switch", f"{folder}/switch", *sampled, *additional)
    return session(case.models, case.prompts, *asked, *arguments, variables=variables)


@pytest.fixture(scope="module", params=each_of(CASES, ()))
def result(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CaseResult:
    """The whole session of a drafter, with its graphs replayed."""
    folder = tmp_path_factory.mktemp(request.param)
    case, file = CASES[request.param](folder), folder / "drafts"
    return CaseResult(case, run_case(case, folder, "--replay", "--record", str(file)), file)


def test_greedy_text(result: CaseResult) -> None:
    exact = Reference(result.case.plain)
    assert result.output["greedy"] == [exact.greedy(prompt, result.case.length) for prompt in result.case.prompts]
    assert 0 < result.output["accepted"] < result.output["drafted"]


def loop_of(case: Case) -> Loop:
    """Return the reference implementation with a case's drafter."""
    vocabularies = None if case.vocabulary is None else open_vocabularies(case.vocabulary, case.models.drafter, 258)
    together = None if vocabularies is None else vocabularies.union()
    if case.by_union:
        vocabularies = together
    elif vocabularies is not None and together is not None:  # which is what a request without language drafts from
        vocabularies.ids = (*vocabularies.ids[:-1], *together.ids)
    return Loop(case.plain, case.models.drafter, vocabularies, copies=case.copies)


class Drafts(NamedTuple):
    """How often each draft of greedy outputs was made.

    expected: by the reference implementation.  recorded: by an engine, which also drafts after the end.
    """

    expected: Counter[tuple[int, ...]]
    recorded: Counter[tuple[int, ...]]


def drafts_of(file: Path, case: Case, loop: Loop) -> Drafts:
    """Return the drafts of the reference implementation, and those that a session has recorded in a file."""
    lines = (json.loads(line) for line in file.read_text().splitlines())
    texts = (loop.drafts(prompt, case.length, case.models.drafts) for prompt in case.prompts)
    return Drafts(*(Counter(tuple(draft) for drafts in each for draft in drafts) for each in (texts, lines)))


def test_drafts_are_those_of_the_plain_loop(result: CaseResult) -> None:
    case, loop = result.case, loop_of(result.case)
    expected, recorded = drafts_of(result.drafts, case, loop)
    assert expected <= recorded
    assert recorded.total() - expected.total() <= 2 * len(case.prompts)
    in_greedy, *in_samples = result.output["copied"]
    if not case.copies:
        assert not in_greedy
        return
    assert in_greedy >= loop.copied > 2 * len(case.prompts)
    assert min(in_samples) > 0.8 * case.samples


def p_of(case: Case, windows: list[list[int]]) -> float:
    """Of samples, under the target's exact distribution."""
    expected = cells(Reference(case.plain), case.prompts[0], SAMPLING, len(windows))
    assert len(expected) > 10
    return p_value([tuple(parallel) for parallel in windows], expected)


@pytest.mark.parametrize("name", ["samples", "misstated"])
def test_joint_of_the_first_tokens(result: CaseResult, name: str) -> None:
    assert (p_of(result.case, result.output[name]) < REJECT_BELOW) == (name == "misstated")


def test_the_row_of_a_gpu_holds_here(result: CaseResult) -> None:
    """What `make test-gpu` asks of such a session, but for waits."""
    from tests.gpu.on_vllm import judged

    assert "accepted" in judged(result.case, result.output, result.drafts)


def test_what_became_of_drafts_is_counted_on_the_device(result: CaseResult) -> None:
    """As vLLM's scheduler counts it, which leaves out what a request that has ended drafted last."""
    accepted, drafted, requests = result.output["counted"]
    asked = len(result.case.prompts) + result.case.samples * 2
    if result.case.vocabulary is None or result.case.by_union:
        assert not drafted
        return
    assert requests == asked
    most = asked * result.case.models.drafts
    assert 0 <= accepted - result.output["accepted"] <= drafted - result.output["drafted"] <= most


def test_windows_were_replayed(result: CaseResult) -> None:
    if method_of(result.case.models.drafter).read_config(result.case.models.drafter).draft_steps is not None:
        assert result.output["replays"] > 5
        assert result.output["padded"] > 5  # six requests in a graph of seven


def test_the_drafter_that_ships_with_greedy_drafts_and_copying(models: Models, reference: Reference) -> None:
    asked = [(prompt[:8] * 3)[:20] for prompt in PROMPTS[:3]]
    arguments = ("--greedy-length", "32", "--replay", "--draft-sample-method", "greedy")
    output = session(models, asked, *arguments, "--additional", '{"mtpc": {"copy": true}}')
    assert output["greedy"] == [reference.greedy(prompt, 32) for prompt in asked]
    assert output["accepted"] > 0
    assert output["copied"][0] > 10
    assert output["replays"] > 5
    assert output["padded"] > 5  # three requests in a graph of seven


def test_every_family_has_a_case() -> None:
    """But those that read the text, which Model Runner V2 does not serve."""
    register_method()
    names = {method.name for method in draft_methods() if not method.reads_text}
    assert names == {name.partition(",")[0] for name in CASES}
