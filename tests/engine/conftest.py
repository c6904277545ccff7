"""The models and the two servers that the tests with vLLM share."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from mtpc.methods.pair import Rule
from tests.engine.exact import Reference
from tests.engine.server import Server, speculative_config
from tests.support.often import each_of
from tests.support.random_lora import make_adapted
from tests.support.random_models import make_drafter, make_target
from tests.support.random_pair import make_byte_pair

collect_ignore_glob = [] if find_spec("vllm") else ["test_*.py"]

WEIGHTS = Path(__file__).parents[2] / "weights"
# Large enough for many short requests at a time, and small enough for 16 long ones to be preempted.
CAPACITY = ("--block-size", "32", "--num-gpu-blocks-override", "256", "--max-num-seqs", "128")
FEW = (*CAPACITY, "--num-gpu-blocks-override", "128")
COMPACT_JSON = ("--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}')
# The drafter that ships, the same behind adapted layers, and pairs with a draft model, by how it is translated.
LORA = "mtpc, LoRA"
DRAFTERS: dict[str, Rule | None] = {"mtpc": None, "pair, slem": "slem", "pair, tli": "tli", LORA: None}
WHOLE = ("--additional-config", '{"mtpc": {"adaptive": false}}')  # drafts


class Models(NamedTuple):
    """Directories, and the number of drafts to ask for."""

    target: Path
    drafter: Path
    drafts: int


@pytest.fixture(scope="session")
def random_models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """A tiny random target and an untrained drafter for it."""
    folder = tmp_path_factory.mktemp("random")
    target = make_target(folder / "target")
    return Models(target, make_drafter(folder / "drafter", target), 5)


@pytest.fixture(scope="session")
def tiny_reference(random_models: Models) -> Reference:
    """The random target in transformers."""
    return Reference(random_models.target)


@pytest.fixture(scope="session")
def models() -> Models:
    """What ships."""
    return Models(WEIGHTS / "byte-target", WEIGHTS / "byte-mtpc-hmm-n8", 7)


@pytest.fixture(scope="session")
def reference(models: Models) -> Reference:
    """The target that ships, in transformers."""
    return Reference(models.target)


@pytest.fixture(scope="session")
def plain(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The target without a drafter."""
    with Server(models.target, tmp_path_factory.mktemp("plain") / "log", *FEW, *COMPACT_JSON) as server:
        yield server


@pytest.fixture(scope="session", params=each_of(DRAFTERS, ("mtpc",)))
def drafted(
    request: pytest.FixtureRequest, models: Models, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """The same server with a drafter."""
    folder, translation, drafter = tmp_path_factory.mktemp("drafted"), DRAFTERS[request.param], models.drafter
    if translation is not None:
        drafter = make_byte_pair(folder / "pair", models.target, translation)
    elif request.param == LORA:
        drafter = make_adapted(folder / "lora", models.target, models.drafter)
    arguments = (*speculative_config(drafter, models.drafts), *WHOLE)
    with Server(models.target, folder / "log", *FEW, *COMPACT_JSON, *arguments) as server:
        yield server
