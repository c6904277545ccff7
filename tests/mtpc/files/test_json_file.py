"""Files that are read as JSON, and what is no such file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mtpc.errors import MTPCError
from mtpc.files.json_file import read_json


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text('{"a": [1, 2.5]}')
    assert read_json(tmp_path / "one.json") == {"a": [1, 2.5]}


def test_what_is_no_json_file_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("{")
    (tmp_path / "link").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    sentences = {
        "missing": "is missing",
        "link": "is not a file, or is a broken link",
        "pipe": "is not a file, or is a broken link",
        "x" * 300: "cannot be read",
        "broken": "cannot be read as JSON",
    }
    for name, sentence in sentences.items():
        with pytest.raises(MTPCError, match=sentence):
            read_json(tmp_path / name)
