"""Every line of both tables holds in every supported release, of which none needs to be installed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from tests.integration_points.records import COMMAND, ENGINES, key, of_release, read, recorded, table

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.mark.parametrize("release", recorded())
def test_every_line_holds(release: str) -> None:
    assert [problem for line in table(release) if (problem := line.problem(of_release(release)))] == []


@pytest.mark.parametrize("release", recorded())
def test_nothing_is_recorded_that_no_line_names(release: str) -> None:
    stale = read(release).keys() - {key(line.module, line.function) for line in table(release)}
    assert not stale, f"run `{COMMAND} WHEEL_OR_FOLDER` with {release}'s"


@pytest.mark.parametrize("engine", ENGINES)
def test_the_versions_that_may_be_installed_are_those_that_are_recorded(engine: str) -> None:
    versions, found = ENGINES[engine].VERSIONS, [name.split("-")[1] for name in recorded() if name.startswith(engine)]
    assert found
    assert list(SpecifierSet(versions).filter(found)) == found
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    assert extras[engine] == [f"{engine}{versions}"]


@pytest.mark.parametrize("release", recorded())
def test_a_line_that_is_not_recorded_says_how_to_record_it(release: str) -> None:
    line = table(release)[0]._replace(function="gone")
    assert f"it is missing in {release}.json: run `{COMMAND} WHEEL_OR_FOLDER`" in str(line.problem(of_release(release)))
