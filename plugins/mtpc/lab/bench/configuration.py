"""What to serve with, as a file for either engine's ``--config``."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote_plus

import torch
import yaml

from mtpc.errors import MTPCError
from mtpc.files.json_file import is_folder, read_json
from mtpc.lab.output_paths import try_file
from mtpc.lab.servers.speculation import speculative_values
from mtpc.methods import method_of

COPIED_DRAFTS = 10  # longest draft where drafts are copied and as long as pays
SUFFIXES = (".yaml", ".yml")  # the engines take no others

Ranges = Sequence[Sequence[int]]


class Served(NamedTuple):
    """What a benchmark measured."""

    engine: str
    target: str
    drafter: str


def read_served(file: Path) -> Served:
    """What a results.json of `mtpc bench` is of.

    Errors: `MTPCError` for one that does not say so.
    """
    settings = read_json(file).get("settings")
    names = settings if isinstance(settings, dict) else {}
    engine, target, drafter = (names.get(name) for name in Served._fields)
    if not (isinstance(engine, str) and isinstance(target, str) and isinstance(drafter, str)):
        raise MTPCError(
            f"{file} does not name engine, target and drafter: `mtpc bench` of an older version wrote it, or measured "
            "running servers."
        )
    return Served(engine, target, drafter)


def check_served(served: Served) -> None:
    """Errors: `MTPCError` for a target or a drafter that is not where the benchmark found it."""
    if not is_folder(served.target):
        raise MTPCError(f"{served.target} is not a folder here, but the benchmark had the target in it.")
    method_of(served.drafter).read_config(Path(served.drafter))


def configuration(served: Served, ranges: Ranges, copying: Mapping[str, Any] | None) -> dict[str, Any]:
    """The settings of the engine that is named, by the names of its options.

    ranges: first and last batch size and the number of drafts that pays, for all batch sizes from 1 on.
    copying: where drafts are also copied from the request's own text, vLLM's additional-config for it.

    Errors: `MTPCError` for an engine that is not known, a drafter that is wrong, or one with which it cannot copy.
    """
    if served.engine not in ENGINES:
        raise MTPCError(f"unknown engine {served.engine!r}; the engines are {', '.join(ENGINES)}.")
    return ENGINES[served.engine].settings(served, ranges, copying)


def _vllm(served: Served, ranges: Ranges, copying: Mapping[str, Any] | None) -> dict[str, Any]:
    values: dict[str, Any] = {"model": served.target, "max-num-seqs": ranges[-1][1]}
    drafter, most = Path(served.drafter), max(drafts for _, _, drafts in ranges)
    if copying is not None:
        longest = max(COPIED_DRAFTS, method_of(drafter).read_config(drafter).num_drafts)
        values["speculative-config"] = speculative_values(drafter, longest)
        values["additional-config"] = copying
    elif most:
        schedule = {"num_speculative_tokens_per_batch_size": ranges} if len(ranges) > 1 else {}
        values["speculative-config"] = speculative_values(drafter, most) | schedule
    return values


def token_map(cost: Mapping[str, Any] | None) -> str:
    """SGLang's ``--speculative-token-map`` for drafts that are copied as well.

    cost: of steps; None: the server times them.
    """
    paying = "" if cost is None else f"&step_cost={quote_plus(json.dumps(cost, separators=(',', ':')))}"
    return f"?copy=true{paying}"


def _sglang(served: Served, ranges: Ranges, copying: Mapping[str, Any] | None) -> dict[str, Any]:
    """SGLang's drafts all have one length, at every batch size: that which pays for one request at a time.

    Copied ones do so in CUDA graphs; without, those of each step are as long as pays.
    """
    values: dict[str, Any] = {"model-path": served.target, "max-running-requests": ranges[-1][1]}
    method, number, cost = method_of(served.drafter), ranges[0][2], None
    if copying is not None and not torch.cuda.is_available():
        number = max(COPIED_DRAFTS, method.read_config(Path(served.drafter)).num_drafts)
        (section,) = copying.values()
        cost = section["step_cost"]
    if number:
        values["speculative-algorithm"] = method.algorithm
        values["speculative-draft-model-path"] = served.drafter
        values["speculative-num-steps"] = number
        values["speculative-eagle-topk"] = 1
        if copying is not None:
            values |= {"speculative-token-map": token_map(cost), "disable-overlap-schedule": True}
    return values


class Engine(NamedTuple):
    """Makes the settings, and is started with a file of them."""

    settings: Callable[[Served, Ranges, Mapping[str, Any] | None], dict[str, Any]]
    command: str


ENGINES = {"vllm": Engine(_vllm, "vllm serve"), "sglang": Engine(_sglang, "python -m sglang.launch_server")}


def has_drafter(values: Mapping[str, Any]) -> bool:
    """Whether a configuration has one."""
    return "speculative-config" in values or "speculative-algorithm" in values


def serve_command(engine: str, file: Path) -> str:
    """The line that serves a configuration, for a shell."""
    return f"{ENGINES[engine].command} --config {shlex.quote(str(file))}"


def check_writable(file: Path, force: bool) -> None:
    """Whether a configuration can be written there; nothing is.

    force: in place of a file that is there.

    Errors: `MTPCError`.
    """
    if file.suffix not in SUFFIXES:
        raise MTPCError(f"--out is {file}, but the engines read only what ends in .yaml or .yml.")
    if file.exists() and not (force and file.is_file()):
        raise MTPCError(f"{file} exists already: give another --out, or --force to replace a file.")
    try_file(file)


def write(file: Path, engine: str, values: Mapping[str, Any]) -> None:
    """Write a configuration, with the lines that serve and made it."""
    made = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, default_flow_style=None)
    file.write_text(f"# {serve_command(engine, file)}\n# Made by `{made}`.\n{lines}", encoding="utf-8")
