"""Ranks in Ray's actors: sampled texts have the target's distribution, and a rank that dies shows in `/health`.

`--thorough` asks for these tests; texts and drafts of all draft methods are in `test_ranks`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from mtpc.lab.statistics.chi_square import REJECT_BELOW
from tests.engine.exact import LENGTH, Reference, Sampling, cells, p_value
from tests.engine_sglang.server import texts
from tests.engine_sglang.test_ranks import RAY, Served, drafted

pytestmark = [pytest.mark.engine, pytest.mark.thorough]
PROMPT, SAMPLES = "It was the best of ", 3000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """FastMTP's server."""
    with drafted("fastmtp", tmp_path_factory.mktemp("ranks"), RAY) as made:
        yield made


@pytest.mark.parametrize("misstated", [False, True])
def test_sampled_texts_have_the_targets_law(served: Served, misstated: bool) -> None:
    """Unless ranks misstate what they have drawn their drafts from."""
    exact, sampling, together = Reference(served.models.target), Sampling(), SAMPLES // 8
    if misstated:
        (served.folder / "misstate").touch()
    body = {"n": together, "max_new_tokens": LENGTH, "ignore_eos": True, "temperature": 1.0}
    windows = [tuple(text) for _ in range(8) for text in texts(served.server.generate(PROMPT, **body))]
    table = cells(exact, list(PROMPT.encode()), sampling, SAMPLES)
    assert len(table) > 10
    assert (p_value(windows, table) < REJECT_BELOW) == misstated


def test_a_rank_that_dies_fails_the_health_check(served: Served) -> None:
    """SGLang's server keeps running, but does not answer; this test is last, as the server is of no use afterwards."""
    health = f"http://127.0.0.1:{served.server.port}/health"
    assert urlopen(health, timeout=60).status == 200
    os.kill(max(ranks(served.folder)), signal.SIGKILL)
    with pytest.raises(HTTPError, match="503"):
        urlopen(health, timeout=60)


def ranks(folder: Path) -> Iterator[int]:
    """The processes of the actors, whose variables name the folder."""
    for title in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            is_a_rank = title.read_bytes().startswith(b"ray::SchedulerActor")
            if is_a_rank and str(folder).encode() in title.with_name("environ").read_bytes():
                yield int(title.parent.name)
