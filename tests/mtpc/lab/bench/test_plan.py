"""Costs of steps out of a benchmark's results, and the drafts that pay by them."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mtpc.draft_length.cost import StepCost
from mtpc.errors import MTPCError
from mtpc.files.config_model import validated
from mtpc.lab.bench.plan import (
    StepTimes,
    best_drafts,
    extrapolation_note,
    measured_costs,
    predicted_speedup,
    read_results,
    schedule,
)
from mtpc.lab.cli.main import app

COST = StepCost(
    plain=((1, 1.0), (4, 1.2), (16, 2.0)),
    verifying=((4, 1.25), (16, 2.1), (64, 6.0)),
    drafting=((1, 0.2), (4, 0.3), (16, 0.5)),
)
SECONDS, RATES = 0.01, (0.8, 0.5, 0.2)


def point(batch: int, rates: tuple[float, ...] = RATES) -> StepTimes:
    """Steps that cost exactly so much."""
    drafting = SECONDS * COST.draft(batch)
    drafted = SECONDS * COST.step(batch, 3 * batch) + drafting
    plain = SECONDS * COST.step(batch, 0)
    return StepTimes(batch, 0.0, plain, drafted, drafting, 4, rates, (1 + sum(rates)) * plain / drafted)


def results(*points: StepTimes) -> dict[str, Any]:
    """As `mtpc bench` writes them."""
    written = []
    for one in points:
        steps, emitted = 100, 100 * (1 + sum(one.rates))
        plain = {"seconds": emitted * one.without / one.batch, "requests_in_flight": one.batch, "tokens": emitted}
        drafted = {"seconds": steps * one.with_drafter / one.batch, "requests_in_flight": one.batch, "tokens": emitted}
        drafted |= {"drafts": steps, "draft_tokens": 3 * steps, "seconds_of_a_drafting_call": one.drafting}
        drafted |= {"requests": 1, "accepted_tokens": emitted - steps}
        acceptance = {"marginal_acceptance_rates": list(one.rates)}
        rounds = {"rounds_without": [plain], "rounds_with": [drafted]}
        written.append({"batch_size": one.batch, "temperature": one.temperature} | rounds | acceptance)
    return {"points": written}


def test_costs_are_found_again(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_text(json.dumps(results(point(1), point(4), point(16))))
    found = measured_costs(read_results(file))
    assert found.seconds == pytest.approx(SECONDS, rel=1e-6)
    assert found.cost == COST


def test_sampled_batches_have_costs_of_their_own() -> None:
    hot = [point(batch)._replace(temperature=0.8) for batch in (1, 16)]
    slower = [one._replace(with_drafter=2 * one.with_drafter) for one in hot]
    found = measured_costs([point(1), point(4), point(16), *slower])
    assert found.cost.of(greedy=True).model_copy(update={"sampled": None}) == COST
    sampled = found.cost.of(greedy=False)
    assert [number for number, _ in sampled.verifying] == [4, 64]
    assert sampled.step(1, 3) == pytest.approx(2 * (COST.step(1, 3) + COST.draft(1)) - COST.draft(1), rel=1e-3)
    assert measured_costs(hot).cost.sampled is None


def test_a_larger_step_is_never_cheaper() -> None:
    slow, fast = point(4)._replace(without=9 * SECONDS), point(16)
    assert measured_costs([point(1), slow, fast]).cost.plain == ((1, 1.0), (4, 9.0), (16, 9.0))


def test_drafts_that_pay_are_fewer_in_a_full_batch() -> None:
    assert predicted_speedup(COST, 1, RATES, 3) == pytest.approx(point(1).without / point(1).with_drafter * 2.5)
    numbers = [best_drafts(COST, batch, RATES) for batch in (1, 8, 64)]
    assert numbers == sorted(numbers, reverse=True)
    assert numbers[0] == 3
    assert best_drafts(StepCost(verifying=((4, 3.0), (8, 9.0))), 4, RATES) == 0
    ranges = schedule(COST, RATES, 64)
    assert ranges[0][0] == 1
    assert ranges[-1][1] == 64
    assert all(before[1] + 1 == after[0] for before, after in itertools.pairwise(ranges))
    assert ranges[-1][2] == numbers[2]


def test_adaptive_lengths_do_not_show_what_a_step_costs(tmp_path: Path) -> None:
    """Where half of the steps draft, or with fewer tokens, the mean time is not that of steps with K tokens."""
    file = tmp_path / "results.json"
    half, short, none = ({"drafts": 50, "draft_tokens": 150}, {"draft_tokens": 250}, {"drafts": 0, "draft_tokens": 0})
    for changed in (half, short, none):
        written = results(point(1), point(4))
        written["points"][1]["rounds_with"][0] |= changed
        file.write_text(json.dumps(written))
        with pytest.raises(MTPCError, match=r"adapt \(temperature 0, batch size 4\).* with --fixed-length\.$"):
            read_results(file)
        written["settings"] = {"fixed_length": True}  # a text part drafts as many tokens as its text has
        file.write_text(json.dumps(written))
        if changed is short:
            assert read_results(file)[1].tokens == 1 + 2
        else:
            with pytest.raises(MTPCError, match="with --fixed-length"):
                read_results(file)


@pytest.mark.parametrize("text", ["{}", "[]", "nothing", '{"points": [{"batch_size": 1}]}'])
def test_what_holds_no_results(text: str, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(MTPCError, match="holds no results of `mtpc bench`"):
        read_results(tmp_path / "results.json")


def test_one_batch_size_is_not_enough() -> None:
    for batches in ((1,), (4, 16)):
        with pytest.raises(MTPCError, match="but 1 and a larger one are required"):
            measured_costs([point(batch) for batch in batches])


@pytest.mark.parametrize("value", [0, 1e-320, 1e-300, 1e-5, 1e6, 1e300, 1e308, float("inf")])
@pytest.mark.parametrize("place", [0, 2])
@pytest.mark.parametrize(
    ("rounds", "key"),
    [("rounds_without", key) for key in ("seconds", "requests_in_flight", "tokens")]
    + [("rounds_with", key) for key in ("seconds", "drafts", "draft_tokens", "seconds_of_a_drafting_call")],
)
def test_numbers_that_no_benchmark_measures(rounds: str, key: str, place: int, value: float, tmp_path: Path) -> None:
    """Each ends in settings or in a sentence."""
    written = results(point(1), point(4), point(16))
    written["points"][place][rounds][0][key] = value
    (tmp_path / "results.json").write_text(json.dumps(written))
    result = CliRunner().invoke(app, ["plan", str(tmp_path / "results.json")])
    assert result.exit_code in (0, 2), result.exception
    assert result.exit_code == 0 or (result.stderr.startswith("mtpc: ") and result.stderr.count("\n") == 1)


def test_more_batch_sizes_than_costs_are_told_of() -> None:
    with pytest.raises(MTPCError, match="the results have 70 batch sizes, but at most 64 are allowed"):
        measured_costs([point(batch) for batch in range(1, 71)])
    assert len(measured_costs([point(batch) for batch in range(1, 65)]).cost.plain) == 64


def test_the_command_prints_settings(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_text(json.dumps(results(point(1), point(4), point(16))))
    printed = CliRunner().invoke(app, ["plan", str(file), "--max-batch", "64"]).output
    lines = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert lines[0] == {"num_speculative_tokens_per_batch_size": schedule(COST, RATES, 64)}
    assert validated(StepCost, lines[1]["mtpc"]["step_cost"], "costs") == COST


def test_the_measured_speedup_is_the_ratio_of_throughputs(tmp_path: Path) -> None:
    """Steps of a batch that is not full at its end take longer, and the last step's draft may exceed the output."""
    written = results(point(1), point(4))
    for one in written["points"]:
        one["rounds_with"] *= 2
        one["rounds_without"] *= 2
        one["rounds_with"][0] = one["rounds_with"][0] | {"tokens": 300, "seconds": 2.0, "requests_in_flight": 0.7}
        one["rounds_with"][1] = one["rounds_with"][1] | {"tokens": 100, "seconds": 1.0}
        one["rounds_without"] = [{"tokens": 50, "seconds": 1.0, "requests_in_flight": 1.0}] * 2
    (tmp_path / "results.json").write_text(json.dumps(written))
    assert [one.speedup for one in read_results(tmp_path / "results.json")] == pytest.approx([400 / 3 / 50] * 2)
    printed = CliRunner().invoke(app, ["plan", str(tmp_path / "results.json")]).output
    assert printed.count("2.67") == 2


def test_batch_sizes_above_the_measured_ones_are_named(tmp_path: Path) -> None:
    two, three = [point(2), point(1)], [point(1), point(4), point(16)]
    sentence = "Batch sizes 3 to 16 are extrapolated from 1 and 2: measure with "
    assert extrapolation_note(two, 16) == f"{sentence}`mtpc bench --fixed-length --batch-sizes 1,2,16`."
    assert (extrapolation_note(three, 17) or "").startswith("Batch size 17 is extrapolated from 4 and 16: ")
    assert extrapolation_note(three, 16) is extrapolation_note(three, 8) is None
    file = tmp_path / "results.json"
    for points, count in ((two, 1), (three, 0)):
        file.write_text(json.dumps(results(*points)))
        printed = " ".join(CliRunner().invoke(app, ["plan", str(file)]).output.split())
        assert printed.count(sentence) == printed.count("extrapolated") == count


def test_the_folder_of_a_benchmark_is_its_results(tmp_path: Path) -> None:
    missing = CliRunner().invoke(app, ["plan", str(tmp_path)])
    assert missing.exit_code == 2
    assert f"{tmp_path / 'results.json'} is missing" in missing.stderr
    (tmp_path / "results.json").write_text(json.dumps(results(point(1), point(4))))
    found = CliRunner().invoke(app, ["plan", str(tmp_path)])
    assert found.exit_code == 0, found.output
    assert found.output == CliRunner().invoke(app, ["plan", str(tmp_path / "results.json")]).output
