"""`mtpc check-acceptance` finds a server that drafts worse than its drafter, wherever it does, and no other."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor
from typer.testing import CliRunner

from mtpc.errors import MTPCError
from mtpc.lab.check_acceptance.command import check_acceptance
from mtpc.lab.check_acceptance.comparison import compare_rates
from mtpc.lab.check_acceptance.expectation import AcceptanceReference
from mtpc.lab.check_acceptance.report import FIRST, HIGHER, LATER, AcceptanceReport, outcome_of
from mtpc.lab.check_acceptance.settings import CheckAcceptanceOptions
from mtpc.lab.cli.main import app
from mtpc.lab.evaluation.acceptance import expected_counts
from mtpc.lab.evaluation.decoding import speculate
from mtpc.lab.servers.draft_counters import DraftCounters
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.targets.generation import generate
from mtpc.methods.drafter import load_drafter, save_drafter
from mtpc.parallel.circuit_part import CircuitPart
from mtpc.target_head.shared import SharedHead
from tests.support.random_models import make_copying, make_drafter, make_target
from tests.support.table_model import DRAFTS, Rows, Sampling
from tests.support.table_server import serving

LABELS = {
    "drafter": "drafter",
    "method": "mtpc",
    "num_drafts": str(DRAFTS),
    "copy": "false",
    "language": "none",
    "draft_sample_method": "probabilistic",
}
SGLANG = {
    "device": "cpu",
    "speculative_algorithm": "MTPC",
    "speculative_draft_model_path": "drafter",
    "speculative_num_steps": DRAFTS,
    "speculative_eagle_topk": 1,
    "speculative_token_map": "?adaptive=false",
}
ENGINES: dict[str, Mapping[str, Any]] = {"vllm": LABELS, "sglang": SGLANG}


class Decoding:
    """A target and a drafter that decode speculatively, one text at a time, as an engine would serve them."""

    drafts, steps = True, 0

    def __init__(self, target: Path, drafter: Path) -> None:
        self.target, self.drafter = FrozenTarget(target), load_drafter(drafter)
        self.accepted = np.zeros(DRAFTS)
        self.generator = torch.Generator().manual_seed(0)

    def logits(self, before: Rows, last: Rows) -> Rows:
        """Nobody asks."""
        raise NotImplementedError

    def sampled(self, text: list[int], count: int, length: int, sampling: Sampling, noise: np.random.Generator) -> Rows:
        """One continuation, [1, length]."""
        assert count == 1
        head, heat = SharedHead.of(self.target.model), {"temperature": sampling.temperature}
        decoded = speculate(self.target, self.drafter, head, text, length, DRAFTS, **heat, generator=self.generator)
        self.steps += len(decoded.accepted)
        self.accepted += [sum(number > i for number in decoded.accepted) for i in range(DRAFTS)]
        return np.array([decoded.tokens])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> CheckAcceptanceOptions:
    """A target, a drafter, prompts: what every check is given, without a server."""
    folder = tmp_path_factory.mktemp("models")
    target = make_target(folder / "target")
    drafter = make_drafter(folder / "drafter", target)
    prompts = folder / "prompts.jsonl"
    words = ("some words", "others of them", "and more", "the last ones")
    prompts.write_text("".join(json.dumps({"text": f"{text} {i}"}) + "\n" for i in range(3) for text in words))
    return CheckAcceptanceOptions("", drafter, target, prompts=prompts, length=64, concurrency=1)


def broken(models: CheckAcceptanceOptions, folder: Path, spoil: Callable[[Tensor], object]) -> Path:
    """Its drafter with other leaves, [n, R, V, d]."""
    drafter = load_drafter(models.drafter)
    assert isinstance(drafter.parallel, CircuitPart)
    (leaves,) = drafter.parallel.head.leaves.parameters()
    spoil(leaves)
    save_drafter(folder, drafter, {"purpose": "tests"})
    return folder


def permute_rows(leaves: Tensor) -> None:
    """The head's rows belong to other tokens."""
    leaves.copy_(leaves.roll(1, dims=2))


def permute_later_rows(leaves: Tensor) -> None:
    """Of the second draft token and those after it; the first of the window is the target's own."""
    leaves[2:] = leaves[2:].roll(1, dims=2)


def checked(
    models: CheckAcceptanceOptions, served: Path | None = None, engine: str = "vllm", **settings: Any
) -> AcceptanceReport:
    """The report of a server with this drafter, or the right one."""
    model = Decoding(models.target, served or models.drafter)
    with serving(model, sglang=engine == "sglang", settings={**ENGINES[engine], **settings}) as url:
        return check_acceptance(replace(models, url=url), Console(quiet=True))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_right_server_passes_and_greedy_rates_are_the_expected_ones(
    models: CheckAcceptanceOptions, engine: str
) -> None:
    report = checked(models, engine=engine)
    assert report.outcome == "as expected" and report.engine == engine
    assert report.acceptance_length == pytest.approx(report.expected_length)
    assert [rate.rate for rate in (*report.rates, report.total)] == pytest.approx(
        [rate.expected for rate in (*report.rates, report.total)]
    )
    assert report.total.accepted > 50 and 0.1 < report.rates[0].rate < 0.95


def test_a_right_server_passes_above_temperature_0(models: CheckAcceptanceOptions) -> None:
    report = checked(replace(models, temperature=1.0))
    assert report.outcome == "as expected", report.sentence
    assert report.total.rate != report.total.expected


WRONG = {1.0: (permute_rows, FIRST), 0.0: (permute_later_rows, LATER)}


@pytest.mark.parametrize("temperature", [1.0, pytest.param(0.0, marks=pytest.mark.thorough)])
def test_a_wrong_tensor_is_found(temperature: float, models: CheckAcceptanceOptions, tmp_path: Path) -> None:
    spoil, cause = WRONG[temperature]
    wrong, models = broken(models, tmp_path / "wrong", spoil), replace(models, temperature=temperature)
    report = checked(models, wrong)
    assert report.outcome == "lower than expected" and cause in report.sentence, report.sentence
    report = checked(replace(models, drafter=wrong), models.drafter)
    assert report.outcome == "higher than expected" and HIGHER in report.sentence, report.sentence


def test_greedy_drafts_of_sampled_outputs_are_accepted_with_certainty(models: CheckAcceptanceOptions) -> None:
    """Where a text is known, a greedy draft is its next token or not; a sampled one is it now and then."""
    prompt = tuple(b"some words")
    for samples in (False, True):
        reference = AcceptanceReference(models.target, models.drafter, DRAFTS, 0.5, samples)
        (text,) = generate(reference.target, [list(prompt)], 200, 0.5, generator=torch.Generator().manual_seed(1))
        counts = reference.counts(prompt, tuple(text[len(prompt) :]))
        assert bool(counts.steps.frac() == 0) != samples
        assert counts.accepted[0] > 0


def test_no_accepted_token_is_named_and_an_unreached_position_is_no_fault() -> None:
    expected = expected_counts(torch.tensor([0.6, 0.5]).double().expand(1, 400, 2))
    never, right = DraftCounters(200, 400, 0, (0, 0)), DraftCounters(200, 400, 180, (120, 60))
    results = {}
    for name, counts in {"never": never, "right": right}.items():
        *rates, total = compare_rates(counts, expected)
        results[name] = [rate.result for rate in (*rates, total)]
        outcome, sentence = outcome_of(tuple(rates), total, counts.acceptance_length, expected.rates.length)
        assert ("No draft token is ever accepted." in sentence) == (name == "never")
        assert outcome == ("lower than expected" if name == "never" else "as expected")
    assert results["never"] == ["lower than expected", "not reached", "lower than expected"]
    assert results["right"] == ["as expected"] * 3


@pytest.mark.thorough
def test_a_right_server_rarely_fails() -> None:
    """Draws of the expected rates are outside of the intervals in less than one of a thousand runs, about."""
    noise, chances = np.random.default_rng(0), (0.7, 0.6, 0.5, 0.4)
    expected, failed = expected_counts(torch.tensor(chances).double().expand(1, 2000, 4)), 0
    for _ in range(500):
        accepted, left = [], 700
        for chance in chances:
            left = int(noise.binomial(left, chance))
            accepted.append(left)
        rates = compare_rates(DraftCounters(700, 2800, sum(accepted), tuple(map(float, accepted))), expected)
        failed += any(rate.result != "as expected" for rate in rates)
    assert failed < 4


REFUSED = {
    ("vllm", "a drafter of vLLM's own"): None,
    ("vllm", "drafts with prompt lookup"): {"copy": "true"},
    ("vllm", "additional-config mtpc.language: none"): {"language": "auto"},
    ("vllm", "drafts with a FastMTP drafter, other, but --drafter"): {"method": "fastmtp", "drafter": "other"},
    ("vllm", "which is not installed here"): {"method": "new"},
    ("vllm", "must be a whole number from 1 to 7"): {"num_drafts": "9"},
    ("vllm", "drafts fewer than K tokens in some steps"): {"num_drafts": "5"},
    ("sglang", "serves without a drafter"): {"speculative_algorithm": None},
    ("sglang", "--speculative-algorithm EAGLE, which has no reference"): {"speculative_algorithm": "EAGLE"},
    ("sglang", "--speculative-eagle-topk of http"): {"speculative_eagle_topk": 4},
    ("sglang", "'?adaptive=false'"): {"speculative_token_map": None},
    ("sglang", "'?copy=false'"): {"speculative_token_map": "?adaptive=false&copy=true"},
}


def test_what_cannot_be_compared_is_refused_in_a_sentence(models: CheckAcceptanceOptions, tmp_path: Path) -> None:
    few = replace(models, requests=2)
    for (engine, message), settings in REFUSED.items():
        model, sglang = Decoding(few.target, few.drafter), engine == "sglang"
        given = {} if settings is None else {**ENGINES[engine], **settings}
        with serving(model, sglang=sglang, settings=given) as url, pytest.raises(MTPCError) as refused:
            check_acceptance(replace(few, url=url), Console(quiet=True))
        assert message in str(refused.value), (message, str(refused.value))
    copying = replace(few, drafter=make_copying(tmp_path / "copying", few.target))
    with pytest.raises(MTPCError, match="only copies"):
        checked(copying, few.drafter, method="copying", copy="true")


@pytest.mark.thorough
def test_other_requests_are_noticed(models: CheckAcceptanceOptions) -> None:
    class Busy(Decoding):
        """As if others were served meanwhile."""

        def sampled(self, *given: Any) -> Rows:
            super().sampled(*given)
            return super().sampled(*given)

    with serving(Busy(models.target, models.drafter), settings=LABELS) as url, pytest.raises(MTPCError) as refused:
        check_acceptance(replace(models, url=url), Console(quiet=True))
    assert "nothing else uses the server" in str(refused.value)


def test_the_command(models: CheckAcceptanceOptions, tmp_path: Path) -> None:
    wrong, out = broken(models, tmp_path / "wrong", permute_rows), tmp_path / "out" / "acceptance.json"
    few = ["--prompts", str(models.prompts), "--requests", "8", "--length", "32", "--out", str(out)]
    for served, code in ((models.drafter, 0), (wrong, 1)):
        with serving(Decoding(models.target, served), settings=LABELS) as url:
            given = ["check-acceptance", url, "--drafter", str(models.drafter), "--target", str(models.target), *few]
            result = CliRunner().invoke(app, given)
        assert result.exit_code == code, result.output
        report = AcceptanceReport.model_validate_json(out.read_bytes())
        assert report.sentence in " ".join(result.output.split())
        assert report.requests == 8 and len(report.rates) == DRAFTS
