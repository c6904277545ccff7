"""A local Ray cluster with Serve applications and their replicas."""

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

# By default Ray runs its workers at a niceness of 15, at which other work on the machine would starve them.
VARIABLES = {"RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}
RUNNING, GONE = "RUNNING", ("STOPPING", "STOPPED")
START_UP = 900.0  # seconds
DEVICES = 8  # GPUs that Ray assumes on a machine without any, because SGLang requests one per rank even on a CPU


class Replica(NamedTuple):
    """A process of Ray Serve that runs an engine."""

    name: str
    state: str
    process: int

    @property
    def memory(self) -> float:
        """Resident memory of the replica and its child processes in MB; Ray runs SGLang's schedulers elsewhere."""
        parent = psutil.Process(self.process)
        return sum(each.memory_info().rss for each in (parent, *parent.children(recursive=True))) / 1e6


class Cluster:
    """Serve applications of a Ray cluster, controlled through its dashboard.

    Args:
        dashboard: URL of the dashboard.
        config: The applications, as in a file for `serve deploy`; may be changed before `deploy`.
    """

    def __init__(self, dashboard: str, config: dict[str, Any]) -> None:
        self.client = ServeSubmissionClient(dashboard)
        self.config = config
        self.url = f"http://127.0.0.1:{config['http_options']['port']}"

    def deploy(self) -> None:
        """Deploy ``config``: start what is new, and stop what is no longer in it."""
        self.client.deploy_applications(self.config)

    def applications(self) -> Mapping[str, Any]:
        """Return the state of all applications, as reported by Serve."""
        return self.client.get_serve_details()["applications"]

    def replicas(self, model: str) -> list[Replica]:
        """Return the replicas of a model that are not stopping."""
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
        """Return the running replicas of a model."""
        return [replica for replica in self.replicas(model) if replica.state == RUNNING]

    def until(self, reached: Callable[[], bool]) -> None:
        """Wait until ``reached`` returns true.

        Raises:
            MTPCError: An application cannot be deployed, with Serve's message, or the time is up.
        """
        deadline = time.monotonic() + START_UP
        while not reached():
            for name, application in self.applications().items():
                if application["status"] == "DEPLOY_FAILED":
                    raise MTPCError(f"Ray Serve could not deploy {name}: {reason(application)}")
            if time.monotonic() > deadline:
                raise MTPCError(f"Ray Serve was not ready after {START_UP:.0f} s: {self.applications()}.")
            time.sleep(1)

    def has(self, number: int, model: str) -> bool:
        """Return whether exactly this number of replicas of a model runs, and no deployment is in progress."""
        return len(self.running(model)) == number and self.all_running()

    def all_running(self) -> bool:
        """Return whether all applications are completely deployed."""
        applications = self.applications()
        return bool(applications) and all(one["status"] == RUNNING for one in applications.values())


def reason(application: Mapping[str, Any]) -> str:
    """Return why an application failed: the last lines of its deployments' messages, or its own message."""
    messages = [one["message"] for one in application["deployments"].values() if one["status"] == "DEPLOY_FAILED"]
    last = "; ".join(message.strip().splitlines()[-1] for message in messages if message.strip())
    return last or application["message"]


def read_config(file: Path, models: Path) -> dict[str, Any]:
    """Read applications for a free port of this machine, with /models replaced by the folder ``models``."""
    config = yaml.safe_load(file.read_text().replace("/models", str(models.resolve())))
    config["http_options"] = {"host": "127.0.0.1", "port": free_port()}
    return dict(config)


@contextmanager
def cluster(config: dict[str, Any]) -> Iterator[Cluster]:
    """Run a Ray cluster on this machine as long as this context is open."""
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
