"""The settings that engines get for a drafter of any draft method."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mtpc.errors import MTPCError
from mtpc.lab.servers.speculation import resolve_num_drafts, speculative_arguments, speculative_config
from tests.support.random_fastmtp import make_fastmtp
from tests.support.random_hybrid import make_hybrid
from tests.support.random_models import make_target

SHIPPED = Path(__file__).parents[4] / "weights" / "byte-mtpc-hmm-n8"


def test_a_window_limits_what_a_circuit_drafts() -> None:
    assert (resolve_num_drafts(SHIPPED, None), resolve_num_drafts(SHIPPED, 3)) == (7, 3)
    for number in (0, 8):
        with pytest.raises(MTPCError, match=f"--num-drafts is {number}, but with .*byte-mtpc-hmm-n8 .* 1 to 7"):
            resolve_num_drafts(SHIPPED, number)


def test_an_mtp_layer_drafts_as_often_as_wanted(tmp_path: Path) -> None:
    drafter = make_fastmtp(tmp_path / "drafter", make_target(tmp_path / "target"))
    assert (resolve_num_drafts(drafter, None), resolve_num_drafts(drafter, 5)) == (3, 5)
    with pytest.raises(MTPCError, match=r"--num-drafts is 0, but with .* from 1 to 256"):
        resolve_num_drafts(drafter, 0)


def test_another_distributions_family_is_served_as_well(tmp_path: Path) -> None:
    drafter = make_hybrid(tmp_path / "drafter", make_target(tmp_path / "target"))
    assert (resolve_num_drafts(drafter, None), resolve_num_drafts(drafter, 1)) == (4, 1)
    with pytest.raises(MTPCError, match="from 1 to 4"):
        resolve_num_drafts(drafter, 5)
    assert speculative_arguments(drafter)[:2] == ["--speculative-algorithm", "HYBRID"]
    assert json.loads(speculative_config(drafter, 4))["num_speculative_tokens"] == 4


def test_a_directory_that_holds_no_drafter(tmp_path: Path) -> None:
    make_target(tmp_path)
    for ask in (speculative_arguments, lambda folder: resolve_num_drafts(folder, None)):
        with pytest.raises(MTPCError, match="describes no drafter"):
            ask(tmp_path)
