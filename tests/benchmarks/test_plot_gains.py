"""The picture of what one gains, from what `mtpc bench` writes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.plot_gains import draw, main, read_panel
from mtpc.errors import MTPCError
from mtpc.lab.bench import report
from tests.mtpc.lab.bench.figures import point


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A benchmark of two temperatures and two batch sizes."""
    report.write(tmp_path, [point(1, 1.0), point(8, 1.0), point(1), point(8)], {})
    return tmp_path / "results.json"


def test_a_panel_holds_the_points_of_one_request_at_a_time(results: Path) -> None:
    panel = read_panel("a model", results)
    assert [pair.temperature for pair in panel.pairs] == [0.0, 1.0]
    assert panel.pairs[0].without == 100
    assert panel.pairs[0].speedup == pytest.approx(4 / 1.5)
    assert panel.pairs[0].rounds_with == (200, 300)
    assert "cores of" in panel.machine


def test_a_pair_of_bars_for_each_model_and_temperature_with_the_speed_up(results: Path) -> None:
    panels = [read_panel(title, results) for title in ("one", "other")]
    figure = draw(panels)
    assert [axes.get_title().splitlines()[0] for axes in figure.axes] == ["one", "other"]
    for axes in figure.axes:
        heights = [bar.get_height() for bar in axes.patches]
        assert heights == pytest.approx([100, 100, 400 / 1.5, 400 / 1.5])
        written = [text.get_text() for text in axes.texts]
        assert written.count("2.67x") == 2
        assert {"100", "267"} < set(written)
        assert [label.get_text() for label in axes.get_xticklabels()] == ["greedy", "temperature 1"]
        assert axes.get_ylim()[0] == 0
    assert {text.get_text() for text in figure.legends[0].get_texts()} == {"without a drafter", "with the drafter"}


def test_what_is_written_does_not_overlap(results: Path) -> None:
    figure = draw([read_panel("SmolLM2-135M-Instruct + FastMTP", results)] * 3)
    figure.canvas.draw()
    for axes in figure.axes:
        titles, numbers = axes.title.get_window_extent(), [text.get_window_extent() for text in axes.texts]
        boxes = [titles, *numbers, *(label.get_window_extent() for label in axes.get_xticklabels())]
        assert not any(one.overlaps(other) for index, one in enumerate(boxes) for other in boxes[:index])


def test_the_command_writes_a_picture(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "docs" / "gains.png"
    monkeypatch.setattr(sys, "argv", ["plot_gains", "--results", "a model", str(results), "--out", str(out)])
    assert main() == 0
    assert out.read_bytes().startswith(b"\x89PNG")


def test_results_that_say_nothing_of_one_request(tmp_path: Path) -> None:
    report.write(tmp_path, [point(8)], {})
    with pytest.raises(MTPCError, match="one request at a time"):
        read_panel("a model", tmp_path / "results.json")


@pytest.mark.parametrize("content", ["{}", '{"points": [1]}', '{"points": [{"batch_size": 1, "temperature": 0}]}'])
def test_a_file_of_something_else(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "results.json").write_text(content)
    monkeypatch.setattr(sys, "argv", ["plot_gains", "--results", "a model", str(tmp_path / "results.json")])
    assert main() == 2
    assert "is not a results.json of `mtpc bench`" in capsys.readouterr().err
