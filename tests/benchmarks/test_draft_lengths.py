"""The comparison of draft lengths without an engine: what is decoded, and the table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import draft_lengths
from benchmarks.draft_lengths import WAYS, Models, Request, main, steps
from mtpc.draft_length.controller import DraftLengths
from mtpc.draft_length.cost import DEFAULT_COSTS
from mtpc.lab.statistics.chi_square import REJECT_BELOW
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.methods.drafter import draft_budget
from mtpc.prompt_lookup.table import CopyTable
from mtpc.target_head.shared import SharedHead
from tests.engine.exact import LENGTH as WINDOW
from tests.engine.exact import Reference, Sampling, cells, p_value
from tests.support.random_hybrid import make_hybrid, register_method
from tests.support.random_models import make_target
from tests.support.random_pair import make_pair

PROMPTS = [list(text.encode()) for text in ("it was the best of ", "IT WAS THE WORST OF ", "it was the age of wis")]
LENGTH, SAMPLES = 20, 600


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """A random target and a drafter with both parts."""
    folder = tmp_path_factory.mktemp("models")
    register_method()
    target = FrozenTarget(make_target(folder / "target", seed=3))
    drafter = target.load_drafter(make_hybrid(folder / "drafter", target.folder))
    return Models(target, drafter, SharedHead.of(target.model), CopyTable())


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("batch_size", [1, 2])
def test_greedy_outputs_and_costs(models: Models, way: str, batch_size: int, copies: bool) -> None:
    longest = 8 if copies else models.drafter.config.max_drafts
    budget = draft_budget(models.drafter.config, longest, copies)
    lengths = DraftLengths(budget, longest, WAYS[way], models.table, models.drafter.config.vocab_size, copies=copies)
    requests = [Request(models, prompt, 0.0, 0) for prompt in PROMPTS]
    found = list(steps(models, lengths, iter(requests), batch_size, LENGTH))
    reference = Reference(models.target.folder)
    complete = [request for request in requests if request.is_complete(LENGTH)]
    assert len(complete) >= len(PROMPTS) - batch_size + 1
    for request in complete:
        output = request.text[len(request.prompt) :]
        assert output == reference.greedy(request.prompt, len(output))
    if way == "always all":
        assert all(step.drafts > 2 * batch_size for step in found)
    if batch_size == 1:  # the first token of an output comes from the prompt, and what exceeds it does not count
        assert sum(step.tokens for step in found) == len(PROMPTS) * (LENGTH - 1)
    for step in found:
        assert batch_size <= step.tokens <= batch_size + step.drafts
        assert step.cost >= DEFAULT_COSTS.step(batch_size, step.drafts)


def test_a_sampled_output_depends_on_its_seed(models: Models) -> None:
    def output(seed: int) -> list[int]:
        lengths = DraftLengths(
            draft_budget(models.drafter.config, 8, True),
            8,
            DEFAULT_COSTS,
            models.table,
            models.drafter.config.vocab_size,
        )
        request = Request(models, PROMPTS[0], 1.0, seed)
        list(steps(models, lengths, iter([request]), 1, LENGTH))
        return request.text

    assert output(1) == output(1) != output(2)


@pytest.mark.parametrize("way", WAYS)
def test_sampled_outputs_have_the_targets_distribution(models: Models, way: str) -> None:
    """Drafts that are continued with copied tokens, in batches; a draft that misstates them would not pass."""
    budget, sampling = draft_budget(models.drafter.config, 8, True), Sampling(1.0)
    lengths = DraftLengths(budget, 8, WAYS[way], models.table, models.drafter.config.vocab_size)
    requests = [Request(models, PROMPTS[0], 1.0, seed) for seed in range(SAMPLES)]
    list(steps(models, lengths, iter(requests), 8, WINDOW))
    windows = [tuple(one.text[len(one.prompt) :][:WINDOW]) for one in requests if one.is_complete(WINDOW)]
    table = cells(Reference(models.target.folder), PROMPTS[0], sampling, len(windows))
    assert len(windows) > 0.9 * SAMPLES
    assert p_value(windows, table) > REJECT_BELOW


def test_the_table(models: Models, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join(json.dumps({"text": bytes(prompt).decode()}) for prompt in PROMPTS))
    monkeypatch.setenv("COLUMNS", "200")
    drafter = models.target.folder.with_name("drafter")
    arguments = ["--target", str(models.target.folder), "--drafter", str(drafter), "--prompts", str(file)]
    arguments += ["--max-tokens", "6", "--questions", "3", "--copy", "--longest", "8", "--batch-sizes"]
    assert main([*arguments, "1,2"]) == 0
    output = capsys.readouterr().out
    assert [output.count(way) for way in draft_lengths.WAYS] == [4, 4]
    assert main([*arguments, "4"]) == 2
    assert "needs as many prompts, but there are 3" in capsys.readouterr().err
    arguments[3] = str(make_pair(tmp_path / "pair", models.target.folder, "tli"))
    assert main([*arguments, "1"]) == 2
    assert "measure it with benchmarks.pairs" in capsys.readouterr().err
