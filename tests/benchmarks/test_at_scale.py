"""The page on scale holds its script's output, which agrees with results by hand and with measurements."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from math import isnan
from pathlib import Path

import pytest

from benchmarks.at_scale.__main__ import main
from benchmarks.at_scale.checks import implied, of_the_paper, on_a_cpu, on_h100s
from benchmarks.at_scale.costs import BATCHES, CONTEXTS, LAYOUTS
from benchmarks.at_scale.drafters import DRAFTERS, EAGLE, FASTMTP, GUMIHO, JOINT, LANGUAGE, LANGUAGES, break_even
from benchmarks.at_scale.gains import beyond, computed
from benchmarks.at_scale.machines import H100, LLAMA70, MIMO
from benchmarks.at_scale.plot import draw
from benchmarks.at_scale.step import Batch
from mtpc.lab.bench import report
from tests.mtpc.lab.bench.figures import drafting_always

PAGE = Path(__file__).parents[2] / "docs" / "at-scale.md"


def test_cells_computed_by_hand() -> None:
    assert MIMO.weights == 2 * (36 * 4096 * 43264 + 151680 * 4096)
    # Each of 36 layers takes 120.9 us for weights, 1.4 us for keys and values, and 20 us fixed.
    # The output head takes 423.9 us, passes over logits 0.8 us, and the host 505 us.
    assert MIMO.step(H100, Batch(1)) == pytest.approx(6.054e-3, rel=1e-3)
    # three passes of 100 us, 22.9 for the projection, 142.3 for the layer, 22.9 for 8,192 rows and 0.2 for a token
    assert replace(FASTMTP, rows=LANGUAGE).seconds(H100, MIMO, Batch(1)) == pytest.approx(0.865e-3, rel=5e-3)
    # Ranks share all but the host's time, the fixed time of layers, and passes over logits.
    # Each sum and the gather take 5.7 us.
    one, eight = (LLAMA70.step(H100, Batch(1, ranks=ranks)) for ranks in (1, 8))
    beside = 80 * 20e-6 + 505e-6
    assert eight == pytest.approx((one - beside) / 8 + beside + (2 * 80 + 2) * 5.7e-6, rel=2e-3)
    assert GUMIHO.heads(LLAMA70.shape) == 5 * 7 * 8192**2 * 2


def test_sums_over_ranks() -> None:
    assert H100.all_reduce(1 << 20, 1) == H100.all_gather(1 << 20, 1) == 0
    assert H100.all_reduce(1 << 20, 8) == pytest.approx(16.7e-6)  # as published: of 262,144 numbers of 4 bytes
    assert H100.all_reduce(1 << 26, 8) == pytest.approx(14 * (2e-6 + (1 << 23) / H100.link))  # around a ring


def test_a_draft_vocabulary_never_costs_more() -> None:
    for drafter in (FASTMTP, GUMIHO, JOINT, EAGLE):
        for target, ranks in LAYOUTS:
            for size in BATCHES:
                batch = Batch(size, ranks=ranks)
                times = [
                    replace(drafter, rows=rows).seconds(H100, target, batch) for rows in (LANGUAGE, LANGUAGES, None)
                ]
                assert times == sorted(times)


def test_a_step_must_say_more_where_computing_is_what_takes_time() -> None:
    for drafter in DRAFTERS:
        for target, ranks in ((MIMO, 1), (MIMO, 8), (LLAMA70, 8)):
            lengths = [break_even(H100, target, drafter, Batch(size, ranks=ranks)) for size in (32, 64, 128, 256)]
            assert lengths == sorted(lengths)
            assert 1 < lengths[-1] < 1 + drafter.drafts


def test_what_does_not_fit() -> None:
    assert isnan(break_even(H100, LLAMA70, FASTMTP, Batch(1)))
    assert isnan(break_even(H100, MIMO, FASTMTP, Batch(256, 8192)))
    assert not isnan(break_even(H100, MIMO, FASTMTP, Batch(256, 8192, 8)))


def test_the_batch_from_which_on_drafting_loses() -> None:
    ratio = computed(LLAMA70, FASTMTP, 8, 1024)
    size = int(beyond(ratio, 2.0, 3))
    assert ratio(size - 1, 3) <= 2.0 < ratio(size, 3)
    assert beyond(ratio, 4.0, 3) == "-"


def test_steps_that_were_measured_are_foretold_as_the_page_says() -> None:
    fitted = [row for row in (*on_a_cpu(), *of_the_paper(), *on_h100s()) if row.fitted]
    assert len(fitted) == 8 and all(abs(row.error) < 0.03 for row in fitted)
    errors = {row.what: abs(row.error) for row in on_a_cpu() if not row.fitted}
    assert errors.pop("3 drafts of 16 requests, 8,192 tokens") < 0.5
    assert max(errors.values()) < 0.125
    speedups = [abs(row.error) for row in of_the_paper() if row.what.startswith("table") and not row.fitted]
    assert len(speedups) == 14 and max(speedups) < 0.035
    for lengths in implied():
        assert lengths[0] > lengths[5] > 0.65 * lengths[0]


def test_a_line_for_each_drafter() -> None:
    assert [len(axes.lines) for axes in draw().axes] == [len(DRAFTERS)] * 3


def tables(text: str) -> list[str]:
    """The tables of a page, each as its lines."""
    return [block.strip() for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)]


def test_the_page_holds_what_the_script_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--plot", str(tmp_path / "scale.png"), "--json", str(tmp_path / "scale.json")]) == 0
    assert (tmp_path / "scale.png").read_bytes().startswith(b"\x89PNG")
    cells = json.loads((tmp_path / "scale.json").read_text())
    assert len(cells) == len(LAYOUTS) * len(CONTEXTS) * len(DRAFTERS) * len(BATCHES)
    assert cells[0]["break_even_acceptance_length"] > 1 and cells[-1]["break_even_acceptance_length"] is None
    printed, shown = tables(capsys.readouterr().out), tables(PAGE.read_text())
    assert len(printed) == 14
    computed = [table for table in shown if table.splitlines()[0] in {one.splitlines()[0] for one in printed}]
    assert len(computed) > 2
    for table in computed:  # one that is printed, or rows of it
        rows = set(table.splitlines())
        assert any(rows <= set(one.splitlines()) for one in printed), (
            "paste what `python -m benchmarks.at_scale` prints"
        )


def test_steps_of_ones_own_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report.write(tmp_path, [drafting_always(1), drafting_always(4)], {})
    assert main(["--measured", str(tmp_path / "results.json")]) == 0
    # Of 20 ms without drafts and 25 with them; two drafts say 2.5 tokens.
    assert "| 1 | 1.25 | 1.25 | 2 | 2.00 |" in capsys.readouterr().out
    assert main(["--measured", str(tmp_path / "results.json"), "--accepted", "0.1"]) == 0
    assert "| 1 | 1.25 | 0 | 1.00 |" in capsys.readouterr().out
    assert main(["--measured", str(tmp_path / "none.json")]) == 2
    assert "none.json" in capsys.readouterr().err
