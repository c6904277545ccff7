"""The models and the servers that the engine tests share; each server serves all of its tests, then stops."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from mtpc.methods.pair import Rule
from tests.engine.conftest import LORA, WEIGHTS, Models
from tests.engine_sglang.server import SGLangServer, drafting
from tests.support.often import each_of
from tests.support.random_lora import make_adapted
from tests.support.random_models import make_drafter, make_target
from tests.support.random_pair import make_byte_pair

collect_ignore_glob = [] if find_spec("sglang") else ["test_*.py"]

COMPACT_JSON = "--constrained-json-disable-any-whitespace"
LARGE = (COMPACT_JSON, "--max-total-tokens", "16384", "--max-running-requests", "128")
# Small enough for 32 requests, half of them long, to be retracted, with a scheduler that hopes for the best.
FEW = ("--max-total-tokens", "4096", "--max-running-requests", "64", "--schedule-conservativeness", "0.05")
NODES, CHILDREN = 11, 3
TREE = ("--speculative-eagle-topk", str(CHILDREN), "--speculative-num-draft-tokens", str(NODES + 1))
SYNCHRONOUS = "--disable-overlap-schedule"
PAGES = ("--page-size", "16")
WHOLE = ("--speculative-token-map", "?adaptive=false")  # drafts, and steps that overlap as on a GPU
CHUNKS = ("--chunked-prefill-size", "64")  # shorter than a prompt
# Drafts are chains or trees, of a draft model with another tokenizer, or behind adapted layers.  Steps overlap or not,
# and pages hold 1 or 16 tokens.  Synchronous chains with pages of 16 are in test_draft_methods.py.  Kinds that several
# modules use stand first, at the same index in each: pytest shares a server by the index of its parameter.
KINDS = {
    "chain": CHUNKS,
    "tree, synchronous": (*TREE, SYNCHRONOUS, *CHUNKS),
    "pair, slem": CHUNKS,
    "pair, tli": CHUNKS,
    LORA: CHUNKS,
    "tree, pages of 16": (*TREE, *PAGES),
}
OFTEN = ("chain",)
TRANSLATIONS: dict[str, Rule] = {"pair, slem": "slem", "pair, tli": "tli"}


@pytest.fixture(scope="session")
def random_models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """A tiny random target and an untrained drafter for it."""
    folder = tmp_path_factory.mktemp("random")
    target = make_target(folder / "target")
    return Models(target, make_drafter(folder / "drafter", target), 5)


@pytest.fixture(scope="session")
def models() -> Models:
    """What ships."""
    return Models(WEIGHTS / "byte-target", WEIGHTS / "byte-mtpc-hmm-n8", 7)


@pytest.fixture(scope="session")
def plain(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SGLangServer]:
    """The target without a drafter."""
    with SGLangServer(models.target, tmp_path_factory.mktemp("plain") / "log", *LARGE) as server:
        yield server


@pytest.fixture(scope="session", params=each_of(KINDS, OFTEN))
def drafted(
    request: pytest.FixtureRequest, models: Models, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SGLangServer]:
    """The same server with a drafter and a small KV cache."""
    folder: Path = tmp_path_factory.mktemp("drafted")
    shape = ("--speculative-num-steps", str(models.drafts), *KINDS[request.param])
    if request.param in TRANSLATIONS:
        pair = make_byte_pair(folder / "pair", models.target, TRANSLATIONS[request.param])
        arguments = drafting(pair, *shape, *WHOLE)
    elif request.param == LORA:
        arguments = drafting(make_adapted(folder / "lora", models.target, models.drafter), *shape, *WHOLE)
    else:
        arguments = drafting(models.drafter, *shape, *WHOLE)
    with SGLangServer(models.target, folder / "log", COMPACT_JSON, *FEW, *arguments) as server:
        yield server
