"""The section of a draft method in config.json, and what the rest of the file must be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mtpc.errors import MTPCError
from mtpc.files.config_json import FORMAT_VERSION, read_section
from mtpc.files.config_model import Strict


class Sizes(Strict):
    """The section."""

    width: int


def whole(sizes: Sizes) -> dict[str, Any]:
    """As it is written."""
    return {"hidden_size": sizes.width, "tiny": {"version": FORMAT_VERSION, **sizes.model_dump()}}


def test_a_section_is_read_or_refused_with_one_sentence(tmp_path: Path) -> None:
    file, right = tmp_path / "config.json", whole(Sizes(width=3))
    for values, refusal in (
        (right, None),
        (right | {"other": 1}, "unknown key .other."),
        ({"hidden_size": 3}, "has no section 'tiny', so it does not describe a tiny drafter"),
        (right | {"tiny": [1]}, "has no section 'tiny'"),
        (right | {"tiny": {"width": 3}}, "tiny.version is None"),
        (right | {"tiny": {"version": True, "width": 3}}, "tiny.version is True"),
        (right | {"tiny": {"version": FORMAT_VERSION, "width": "3"}}, "at 'width'"),
        (right | {"hidden_size": 4}, "hidden_size"),
    ):
        file.write_text(json.dumps(values))
        if refusal is None:
            assert read_section(tmp_path, "tiny", Sizes, whole, "a tiny drafter") == Sizes(width=3)
        else:
            with pytest.raises(MTPCError, match=refusal):
                read_section(tmp_path, "tiny", Sizes, whole, "a tiny drafter")
