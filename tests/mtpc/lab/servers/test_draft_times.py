"""What an engine's drafting clock has written."""

from pathlib import Path

from mtpc.lab.servers.draft_times import read_draft_times


def test_draft_times_are_zero_before_the_first_draft(tmp_path: Path) -> None:
    file = tmp_path / "times.json"
    assert read_draft_times(None) == read_draft_times(file) == (0, 0, {})
    file.write_text('{"drafts": 3, "seconds": 0.5, "parts": {"parallel": 0.25}}')
    assert read_draft_times(file) == (3, 0.5, {"parallel": 0.25})
