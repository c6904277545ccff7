"""Writes a configuration file for either engine's ``--config`` from benchmark results."""

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

from mtpc.draft_length.cost import StepCost
from mtpc.errors import MTPCError
from mtpc.files.json_file import is_folder, read_json
from mtpc.lab.output_paths import try_file
from mtpc.lab.servers.speculation import V1_ARGUMENTS, V1_PREFIX, speculative_values
from mtpc.methods import method_of

COPIED_DRAFTS = 10  # largest K with prompt lookup, whose draft length adapts
SUFFIXES = (".yaml", ".yml")  # the only ones that the engines accept
V1_SETTINGS = {argument.removeprefix("--"): True for argument in V1_ARGUMENTS}  # in a file for vLLM
STEPS = "speculative-adaptive-config"  # of SGLang, which reads it from a file of its own

Ranges = Sequence[Sequence[int]]


class MeasuredServer(NamedTuple):
    """The engine, target and drafter that a benchmark measured.

    Attributes:
        engine: Name of the engine.
        target: Folder of the target.
        drafter: Drafter checkpoint.
    """

    engine: str
    target: str
    drafter: str


def read_measured_server(file: Path) -> MeasuredServer:
    """Read the measured engine, target and drafter from a results.json of `mtpc bench`.

    Args:
        file: The results.json.

    Returns:
        The names that the benchmark wrote.

    Raises:
        MTPCError: The file does not name them.
    """
    settings = read_json(file).get("settings")
    names = settings if isinstance(settings, dict) else {}
    engine, target, drafter = (names.get(name) for name in MeasuredServer._fields)
    if not (isinstance(engine, str) and isinstance(target, str) and isinstance(drafter, str)):
        raise MTPCError(
            f"{file} does not name engine, target and drafter: an older version wrote it, or it measured running "
            "servers. Run `mtpc bench` again with --target and --drafter."
        )
    return MeasuredServer(engine, target, drafter)


def check_measured_server(served: MeasuredServer) -> None:
    """Check that target and drafter are where the benchmark found them.

    Args:
        served: What the benchmark measured.

    Raises:
        MTPCError: The folder of the target or the drafter checkpoint does not exist.
    """
    if not is_folder(served.target):
        raise MTPCError(
            f"{served.target} is not a directory, but the benchmark read the target from it: put the target there, or "
            "run `mtpc bench` again."
        )
    method_of(served.drafter).read_config(Path(served.drafter))


def copying_config(cost: StepCost | None) -> dict[str, Any]:
    """Return vLLM's additional-config for prompt lookup.

    Args:
        cost: Measured costs of decoding steps, by which draft lengths adapt on a CPU. On a GPU they do not. None: the
            server measures them when it starts.
    """
    if cost is None or torch.cuda.is_available():
        return {"mtpc": {"copy": True}}
    return {"mtpc": {"copy": True, "step_cost": cost.model_dump(exclude_defaults=True)}}


def configuration(served: MeasuredServer, ranges: Ranges, copying: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the engine's settings, by the names of its options.

    Args:
        served: Engine, target and drafter.
        ranges: Triples (first batch size, last batch size, best number of draft tokens) for all batch sizes from 1.
        copying: See `copying_config`; None to serve without prompt lookup.

    Raises:
        MTPCError: The engine is unknown, or the drafter checkpoint is wrong.
    """
    if served.engine not in ENGINES:
        raise MTPCError(f"the engine is {served.engine!r}, but the supported engines are {', '.join(ENGINES)}.")
    return ENGINES[served.engine].settings(served, ranges, copying)


def _vllm(served: MeasuredServer, ranges: Ranges, copying: Mapping[str, Any] | None) -> dict[str, Any]:
    values: dict[str, Any] = {"model": served.target, "max-num-seqs": ranges[-1][1]}
    drafter, most = Path(served.drafter), max(drafts for _, _, drafts in ranges)
    if copying is not None:
        own = method_of(drafter).read_config(drafter).num_drafts
        longest = own if torch.cuda.is_available() else max(COPIED_DRAFTS, own)
        values["speculative-config"] = speculative_values(drafter, longest)
        values["additional-config"] = copying
    elif most:
        schedule = {"num_speculative_tokens_per_batch_size": ranges} if len(ranges) > 1 else {}
        values["speculative-config"] = speculative_values(drafter, most) | schedule
    if has_drafter(values) and method_of(drafter).reads_text:
        values |= V1_SETTINGS
    return values


def token_map(cost: Mapping[str, Any] | None) -> str:
    """Return SGLang's ``--speculative-token-map`` that switches prompt lookup on.

    Args:
        cost: The setting ``step_cost``; None to let the server measure step times when it starts.
    """
    step_cost = "" if cost is None else f"&step_cost={quote_plus(json.dumps(cost, separators=(',', ':')))}"
    return f"?copy=true{step_cost}"


def _sglang(served: MeasuredServer, ranges: Ranges, copying: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return SGLang's settings.

    On a GPU, SGLang's adaptive draft length has one length for each range of batch sizes.  A draft model cannot use it,
    and has the best length of batch size 1.  On a CPU, the draft length adapts in each step anyway.
    """
    values: dict[str, Any] = {"model-path": served.target, "max-running-requests": ranges[-1][1]}
    method, number, cost = method_of(served.drafter), ranges[0][2], None
    on_gpu, steps = torch.cuda.is_available(), {str(first): {"candidate_steps": [best]} for first, _, best in ranges}
    if copying is not None and not on_gpu:
        number = max(COPIED_DRAFTS, method.read_config(Path(served.drafter)).num_drafts)
        (section,) = copying.values()
        cost = section.get("step_cost")
    adapts = on_gpu and len(ranges) > 1 and not method.reads_text
    if adapts:
        number = max(best for _, _, best in ranges)
    if number:
        values["speculative-algorithm"] = method.algorithm
        values["speculative-draft-model-path"] = served.drafter
        values["speculative-num-steps"] = number
        values["speculative-eagle-topk"] = 1
        if adapts:
            values |= {"speculative-adaptive": True, STEPS: steps}
        if copying is not None:
            values |= {"speculative-token-map": token_map(cost), "disable-overlap-schedule": True}
    return values


class ConfigFormat(NamedTuple):
    """The configuration file of an engine.

    Attributes:
        settings: Returns the settings, see `configuration`.
        command: Command that takes the file as ``--config``.
    """

    settings: Callable[[MeasuredServer, Ranges, Mapping[str, Any] | None], dict[str, Any]]
    command: str


ENGINES = {"vllm": ConfigFormat(_vllm, "vllm serve"), "sglang": ConfigFormat(_sglang, "python -m sglang.launch_server")}


def has_drafter(values: Mapping[str, Any]) -> bool:
    """Whether a configuration serves with a drafter."""
    return "speculative-config" in values or "speculative-algorithm" in values


def serve_command(engine: str, file: Path, values: Mapping[str, Any]) -> str:
    """Return the shell command that serves with a file of these settings."""
    command = f"{ENGINES[engine].command} --config {shlex.quote(str(file))}"
    return " ".join([*V1_PREFIX, command]) if V1_SETTINGS.keys() <= values.keys() else command


def check_writable(file: Path, force: bool) -> None:
    """Check that a configuration can be written, without writing it.

    Args:
        file: The value of ``--out``.
        force: Whether an existing file may be replaced.

    Raises:
        MTPCError: The file exists, cannot be written, or has a suffix that the engines do not accept.
    """
    if file.suffix not in SUFFIXES:
        raise MTPCError(f"--out is {file}, but the engines read only files that end in .yaml or .yml.")
    _check_free(file, file, force)


def check_steps_writable(file: Path, values: Mapping[str, Any], force: bool) -> None:
    """Check that the file of SGLang's adaptive draft lengths can be written, if the settings have any.

    Args:
        file: The configuration.
        values: Settings of `configuration`.
        force: Whether an existing file may be replaced.

    Raises:
        MTPCError: The file exists or cannot be written.
    """
    if STEPS in values:
        _check_free(file, _steps_file(file), force)


def _check_free(out: Path, file: Path, force: bool) -> None:
    if file.exists() and not (force and file.is_file()):
        raise MTPCError(f"--out is {out}, but {file} exists already: give another path, or --force to replace a file.")
    try_file(file)


def _steps_file(file: Path) -> Path:
    """Return the file of SGLang's adaptive draft lengths for a configuration."""
    return file.with_suffix(".steps.json")


def write(file: Path, engine: str, values: Mapping[str, Any], note: str | None = None) -> None:
    """Write a configuration, below comments with the commands that serve with it and that made it.

    Args:
        file: File to write.
        engine: Name of the engine.
        values: Settings of `configuration`.
        note: A further comment, of one line.
    """
    made = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    comments = [serve_command(engine, file, values), f"Made by `{made}`.", *([note] if note else [])]
    file.parent.mkdir(parents=True, exist_ok=True)
    if STEPS in values:
        _steps_file(file).write_text(json.dumps(values[STEPS], indent=2), encoding="utf-8")
        values = {**values, STEPS: str(_steps_file(file))}
    lines = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, default_flow_style=None)
    file.write_text("".join(f"# {comment}\n" for comment in comments) + lines, encoding="utf-8")
