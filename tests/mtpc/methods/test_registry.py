"""The registry: what other distributions bring is known, and breaks nothing where it is broken."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from mtpc.errors import MTPCError
from mtpc.methods import ENTRY_POINT_GROUP, broken_methods, draft_methods, method_of
from mtpc.methods.fastmtp import FastMTP

OWN = ["mtpc", "bytecircuit", "fastmtp", "gumiho", "medusa", "copying", "pair"]


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Entry points of the group, as NAME=OBJECT, that a test may fill; the registry is asked anew."""
    values: list[str] = []

    def entry_points(group: str) -> list[EntryPoint]:
        return [EntryPoint(*value.split("="), group) for value in values] if group == ENTRY_POINT_GROUP else []

    monkeypatch.setattr(metadata, "entry_points", entry_points)
    draft_methods.cache_clear()
    yield values
    draft_methods.cache_clear()


class Another(FastMTP):
    """A draft method of another distribution."""

    name = "another"
    architecture = "EagleAnotherForCausalLM"


def test_families_of_other_distributions(registered: list[str]) -> None:
    registered.append(f"another={__name__}:Another")
    assert [method.name for method in draft_methods()] == [*OWN, "another"]
    assert broken_methods() == {}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("nowhere.at.all:DraftMethod", "No module named"),
        ("mtpc.errors:MTPCError", "is not a DraftMethod"),
        ("mtpc.errors:None_", ""),
    ],
)
def test_a_broken_one_is_told_and_leaves_the_others(
    registered: list[str], tmp_path: Path, value: str, reason: str
) -> None:
    registered.append(f"broken={value}")
    assert [method.name for method in draft_methods()] == OWN
    assert reason in broken_methods()["broken"]
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(
        MTPCError,
        match=r"no section 'mtpc', 'bytecircuit', 'fastmtp', 'gumiho', 'medusa', 'copying', 'pair'; the draft method "
        "'broken' cannot be loaded",
    ):
        method_of(tmp_path)
