"""A Ray of this process, applications on it, and the processes that serve them."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil  # type: ignore[import-untyped]
import ray
import torch
import yaml
from ray.dashboard.modules.serve.sdk import ServeSubmissionClient

from mtpc.errors import MTPCError
from mtpc.lab.servers.server import free_port

# Ray gives its workers the lowest priority but four: beside any other work on the machine they would starve.
VARIABLES = {"RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}
RUNNING, GONE = "RUNNING", ("STOPPING", "STOPPED")
START_UP = 900.0  # seconds
DEVICES = 8  # GPUs that Ray is told of where there are none: SGLang asks for one for each rank, on a CPU too


class Replica(NamedTuple):
    """A process of Serve with an engine in it."""

    name: str
    state: str
    process: int

    @property
    def memory(self) -> float:
        """Resident memory of the replica and of its child processes, MB; SGLang's schedulers are Ray's children."""
        own = psutil.Process(self.process)
        return sum(process.memory_info().rss for process in (own, *own.children(recursive=True))) / 1e6


class Cluster:
    """Applications of one Ray, by its dashboard's own interface.

    config: the applications, as `serve deploy` reads them.
    """

    def __init__(self, dashboard: str, config: dict[str, Any]) -> None:
        self.client = ServeSubmissionClient(dashboard)
        self.config = config
        self.url = f"http://127.0.0.1:{config['http_options']['port']}"

    def deploy(self) -> None:
        """Serve what ``config`` says now: what is new is started, what is not in it any more is stopped."""
        self.client.deploy_applications(self.config)

    def applications(self) -> Mapping[str, Any]:
        """What Serve says of them."""
        return self.client.get_serve_details()["applications"]

    def replicas(self, model: str) -> list[Replica]:
        """Those of one model."""
        found = (
            deployment["replicas"]
            for application in self.applications().values()
            for name, deployment in application["deployments"].items()
            if name.partition(":")[2] == model  # after the name of the engine's class
        )
        return [
            Replica(replica["replica_id"], replica["state"], replica.get("pid", 0))
            for replicas in found
            for replica in replicas
            if replica["state"] not in GONE
        ]

    def running(self, model: str) -> list[Replica]:
        """Those that serve."""
        return [replica for replica in self.replicas(model) if replica.state == RUNNING]

    def until(self, reached: Callable[[], bool]) -> None:
        """Wait for what should come.

        Errors: `MTPCError`, with Serve's own message, when an application cannot be deployed, or with what is missing.
        """
        deadline = time.monotonic() + START_UP
        while not reached():
            for name, application in self.applications().items():
                if application["status"] == "DEPLOY_FAILED":
                    raise MTPCError(f"Ray Serve could not deploy {name}: {reason(application)}")
            if time.monotonic() > deadline:
                raise MTPCError(f"After {START_UP:.0f} s Ray Serve was not ready: {self.applications()}.")
            time.sleep(1)

    def has(self, number: int, model: str) -> bool:
        """Whether just so many replicas of a model serve, and nothing is under way."""
        return len(self.running(model)) == number and self.all_running()

    def all_running(self) -> bool:
        """Whether every application has what it should have."""
        applications = self.applications()
        return bool(applications) and all(one["status"] == RUNNING for one in applications.values())


def reason(application: Mapping[str, Any]) -> str:
    """Why it failed: the last line of what its deployments say, which ends in the engine's or our own sentence."""
    said = [one["message"] for one in application["deployments"].values() if one["status"] == "DEPLOY_FAILED"]
    return "; ".join(message.strip().splitlines()[-1] for message in said if message.strip()) or application["message"]


def read_config(file: Path, models: Path) -> dict[str, Any]:
    """Applications on a free port of this machine, with ``models`` for the folder that the file names /models."""
    config = yaml.safe_load(file.read_text().replace("/models", str(models.resolve())))
    config["http_options"] = {"host": "127.0.0.1", "port": free_port()}
    return dict(config)


@contextmanager
def cluster(config: dict[str, Any]) -> Iterator[Cluster]:
    """A Ray on this machine, which ends with the context."""
    os.environ.update(VARIABLES)
    context = ray.init(
        address="local",
        include_dashboard=True,
        dashboard_host="127.0.0.1",
        dashboard_port=free_port(),
        num_gpus=None if torch.cuda.is_available() else DEVICES,
        object_store_memory=200_000_000,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    try:
        yield Cluster(f"http://{context.dashboard_url}", config)
    finally:
        ray.shutdown()
