"""Ranks over Ray: sampled outputs have the target's distribution, and errors on one of two machines are reported.

A machine is a Ray node with its own file system, in a mount namespace.  `--thorough` runs these tests.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.error import URLError

import pytest
from safetensors.torch import load_file, save_file

import mtpc
from mtpc.files.weights import WEIGHTS
from mtpc.lab.statistics.chi_square import REJECT_BELOW
from tests.engine.cluster import Cluster, cluster
from tests.engine.conftest import CAPACITY, Models
from tests.engine.exact import LENGTH, Reference, Sampling, cells, p_value
from tests.engine.ranks import CORES, RANKS, SUPPORT, Served, serving
from tests.engine.server import NONE, Server, alone, processes_of_group, speculative_config, tokens
from tests.engine.test_ranks import ray
from tests.support.on_ranks import METHODS

__all__ = ["ray"]  # a fixture

pytestmark = [pytest.mark.engine, pytest.mark.thorough]
PROMPT, SAMPLES = "It was the best of ", 3000
ON_A_CPU = [SUPPORT / "ray_on_cpu"]
OVER_RAY = ("--distributed-executor-backend", "ray")
SOON = 120.0  # seconds in which a failure is noticed


def mounted(what: Path, where: Path) -> list[str]:
    """A command that runs another one on a machine that has something else there."""
    script = 'mount --bind "$0" "$1" && shift && exec "$@"'
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", script, str(what), str(where)]


def start(models: Models, log: Path, nodes: Cluster) -> Server:
    """Two ranks over Ray."""
    arguments = (*CAPACITY, *RANKS, *OVER_RAY, *speculative_config(models.drafter, models.drafts))
    return Server(models.target, log, *arguments, path=ON_A_CPU, variables=nodes.variables | CORES)


def refused(
    folder: Path, models: Models, sentence: str, prefix: Sequence[str] = (), variables: Mapping[str, str] = NONE
) -> None:
    """Assert that a server on two machines logs why it does not start; prefix, variables: of the second machine."""
    with alone(), cluster() as nodes:
        nodes.start(1, ON_A_CPU)
        nodes.start(1, ON_A_CPU, variables, prefix)
        does_not_start(start(models, folder / "log", nodes), sentence)


def does_not_start(server: Server, sentence: str) -> None:
    """Assert that a server ends with an error code, not by a signal, and logs a sentence."""
    with pytest.raises(AssertionError, match="the server did not start"), server:
        pass
    assert server.process.returncode > 0
    assert sentence in server.log.read_text()


@pytest.fixture
def models(tmp_path: Path) -> Models:
    """A target and a drafter for it."""
    return METHODS["mtpc"](tmp_path).models


def test_other_weights_on_the_second_machine(tmp_path: Path, models: Models) -> None:
    other = Path(shutil.copytree(models.drafter, tmp_path / "other"))
    tensors = load_file(other / WEIGHTS)
    save_file({name: 2 * tensor for name, tensor in tensors.items()}, other / WEIGHTS)
    refused(tmp_path, models, "tensor-parallel ranks would draft different tokens", mounted(other, models.drafter))


def test_no_drafter_on_the_second_machine(tmp_path: Path, models: Models) -> None:
    (tmp_path / "empty").mkdir()
    refused(tmp_path, models, "but missing on rank 1", mounted(tmp_path / "empty", models.drafter))


def test_no_package_on_the_second_machine(tmp_path: Path, models: Models) -> None:
    (tmp_path / "empty").mkdir()
    installed = Path(mtpc.__file__).parents[1]
    refused(tmp_path, models, "EagleMTPCForCausalLM", mounted(tmp_path / "empty", installed))


def test_the_plugin_is_left_out_on_the_second_machine(tmp_path: Path, models: Models) -> None:
    refused(tmp_path, models, "EagleMTPCForCausalLM", variables={"VLLM_PLUGINS": "ray_on_cpu"})


def test_the_plugin_is_left_out_of_the_server(tmp_path: Path, models: Models) -> None:
    drafting = speculative_config(models.drafter, models.drafts)
    server = Server(models.target, tmp_path / "log", *RANKS, *drafting, variables={"VLLM_PLUGINS": ""})
    does_not_start(server, "EagleMTPCForCausalLM")


@pytest.mark.parametrize("executor", ["", "ray"], ids=["mp", "ray"])
def test_a_rank_that_dies_ends_the_server(executor: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The answer under way is an error, and soon nothing is left that could answer.

    vLLM's older executor for Ray waits for it longer: it reads with a time limit of minutes.
    """
    with serving("mtpc", executor, tmp_path, request) as (server, *_), ThreadPoolExecutor(1) as pool:
        assert len(tokens(server.complete(PROMPT, max_tokens=8))[0])
        answer = pool.submit(server.complete, PROMPT, max_tokens=480, ignore_eos=True, n=16)
        time.sleep(1.0)
        everywhere = processes_of_group(server.process.pid)
        if executor:
            everywhere = request.getfixturevalue("ray").processes()
        os.kill(max(process for process in everywhere if is_a_rank(process)), signal.SIGKILL)
        with pytest.raises((URLError, OSError)):
            answer.result(SOON)
        server.process.wait(SOON)


def is_a_rank(process: int) -> bool:
    """By the title that vLLM, or Ray, gives a process."""
    title = (Path("/proc") / str(process) / "cmdline").read_bytes()
    return title.startswith((b"VLLM::Worker", b"ray::RayWorker"))


@pytest.fixture(scope="module", params=["ray", "ray, compiled"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A drafter's server with each of vLLM's executors for Ray; used last: no other starts before it ends."""
    with serving("mtpc", request.param, tmp_path_factory.mktemp("ranks"), request) as made:
        yield made


@pytest.mark.parametrize("misstated", [False, True])
def test_sampled_texts_have_the_targets_law(served: Served, misstated: bool) -> None:
    """Unless ranks misstate what they have drawn their drafts from."""
    (exact, sampling), together = (Reference(served.models.target), Sampling()), SAMPLES // 8
    if misstated:
        (served.folder / "misstate").touch()
    body = {"n": together, "max_tokens": LENGTH, "ignore_eos": True, "temperature": 1.0}
    answers = [served.server.complete(PROMPT, **body) for _ in range(8)]
    windows = [tuple(choice) for answer in answers for choice in tokens(answer)]
    table = cells(exact, list(PROMPT.encode()), sampling, SAMPLES)
    assert len(table) > 10
    assert (p_value(windows, table) < REJECT_BELOW) == misstated
