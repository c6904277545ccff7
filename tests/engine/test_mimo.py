"""A MiMo target through `vllm serve`, with the MTP layer of its own checkpoint after `mtpc convert fastmtp`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mtpc.convert.fastmtp import convert_fastmtp
from tests.engine.conftest import CAPACITY
from tests.engine.exact import Reference
from tests.engine.fastmtp import Loop
from tests.engine.prompts import prompts
from tests.engine.server import Server, speculative_config, tokens
from tests.support.random_mimo import make_mimo_target

pytestmark = pytest.mark.engine
SUPPORT = Path(__file__).parents[1] / "support"
DRAFTS, LENGTH = 3, 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds "mimo", the checkpoint as published, "qwen2", the same for transformers, and "drafter"."""
    folder = tmp_path_factory.mktemp("mimo")
    make_mimo_target(folder / "mimo", folder / "qwen2")
    convert_fastmtp(folder / "mimo", folder / "drafter")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    """The target needs its own configuration class, as the published one does."""
    with Server(
        folder / "mimo",
        folder / "log",
        *CAPACITY,
        "--trust-remote-code",
        *speculative_config(folder / "drafter", DRAFTS),
        path=[SUPPORT / "recorded_drafts"],
        variables={"RECORDED_DRAFTS": str(folder / "drafts")},
    ) as server:
        yield server


def test_drafts_and_text_are_those_of_the_plain_loop(folder: Path, server: Server) -> None:
    loop, exact = Loop(folder / "qwen2", folder / "drafter"), Reference(folder / "qwen2")
    read = steps = 0
    for prompt in prompts(20):
        ids = list(prompt[:60].encode())
        answer = server.complete(prompt[:60], max_tokens=LENGTH, ignore_eos=True)
        assert tokens(answer)[0] == exact.greedy(ids, LENGTH)
        lines = (folder / "drafts").read_text().splitlines()
        found, read = [json.loads(line)[0] for line in lines[read:]], len(lines)
        expected = loop.drafts(ids, LENGTH, DRAFTS)
        assert found[: len(expected)] == expected
        steps += len(expected)
    assert steps > 200
