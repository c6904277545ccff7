"""The engines' settings for a drafter, from its checkpoint and the registry of draft methods."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mtpc.files.target import Target, check_target
from mtpc.methods import method_of
from mtpc.methods.drafter import check_drafts


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
