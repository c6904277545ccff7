"""The engines' settings for a drafter, from its checkpoint and the registry of draft methods."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from mtpc.files.target import Target, check_target
from mtpc.methods import method_of, recognize
from mtpc.methods.drafter import check_drafts

# A text part runs on vLLM's V1 runner, without overlap of steps.
V1_ENVIRONMENT = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
V1_ARGUMENTS = ["--no-async-scheduling"]
V1_PREFIX = [f"{name}={value}" for name, value in V1_ENVIRONMENT.items()]  # of a shell command


def resolve_num_drafts(drafter: Path, wanted: int | None, target: Target | None = None) -> int:
    """Determine the number of draft tokens per decoding step, K.

    Args:
        drafter: Drafter checkpoint.
        wanted: The value of ``--num-drafts``; None for the number that the drafter was trained for.
        target: Sizes of the target that the drafter must fit; None where they are not known.

    Returns:
        K.

    Raises:
        MTPCError: The drafter cannot draft this number, its checkpoint is wrong, or it was trained for another target.
    """
    config = method_of(drafter).read_config(drafter)
    if target is not None:
        check_target(drafter, config, target)
    number: int = config.num_drafts if wanted is None else wanted
    check_drafts(config, number, "--num-drafts", drafter)
    return number


def speculative_values(drafter: Path, num_drafts: int) -> dict[str, Any]:
    """Return the values of vLLM's ``--speculative-config``; all draft methods are served as vLLM's method ``eagle``.

    Args:
        drafter: Drafter checkpoint.
        num_drafts: Draft tokens per decoding step, K.
    """
    return {
        "method": "eagle",
        "model": str(drafter),
        "num_speculative_tokens": num_drafts,
        "draft_sample_method": "probabilistic",
    }


def speculative_config(drafter: Path, num_drafts: int) -> str:
    """Return vLLM's ``--speculative-config`` as JSON.

    Args:
        drafter: Drafter checkpoint.
        num_drafts: Draft tokens per decoding step, K.
    """
    return json.dumps(speculative_values(drafter, num_drafts), separators=(",", ":"))


def speculative_arguments(drafter: Path) -> list[str]:
    """Return SGLang's arguments for a drafter.

    A drafter that only does prompt lookup needs the overlap scheduler off.

    Args:
        drafter: Drafter checkpoint.

    Raises:
        MTPCError: The directory holds no drafter.
    """
    method = method_of(drafter)
    arguments = ["--speculative-algorithm", method.algorithm, "--speculative-draft-model-path", str(drafter)]
    only_copies = not method.read_config(drafter).own_drafts
    return [*arguments, "--disable-overlap-schedule"] if only_copies else arguments


def serve_commands(target: Path, drafter: Path, num_drafts: int) -> list[str]:
    """Return the commands that serve a target with a drafter: vLLM's, and SGLang's.

    Args:
        target: Folder of the target.
        drafter: Drafter checkpoint, or a draft model with the target's vocabulary, for the engines' own draft loops.
        num_drafts: Draft tokens per decoding step, K.

    Raises:
        MTPCError: The drafter has no readable config.json.
    """
    values, steps = speculative_values(drafter, num_drafts), ["--speculative-num-steps", str(num_drafts)]
    vllm = ["vllm", "serve", str(target), "--speculative-config"]
    sglang = ["python", "-m", "sglang.launch_server", "--model-path", str(target)]
    method = recognize(drafter)
    if method is None:
        values["method"] = "draft_model"
        sglang += ["--speculative-algorithm", "STANDALONE", "--speculative-draft-model-path", str(drafter), *steps]
        sglang += ["--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", str(num_drafts + 1)]
        return [shlex.join([*vllm, json.dumps(values)]), shlex.join(sglang)]
    vllm.append(json.dumps(values))
    if method.reads_text:
        vllm = [*V1_PREFIX, *vllm, *V1_ARGUMENTS]
    return [shlex.join(vllm), shlex.join([*sglang, *speculative_arguments(drafter), *steps])]
