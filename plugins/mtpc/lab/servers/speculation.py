"""What both engines are told of a drafter: it follows from its directory and the registry of draft methods."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mtpc.files.target import Target, check_target
from mtpc.methods import method_of
from mtpc.methods.drafter import check_drafts


def drafts_of(drafter: Path, wanted: int | None, target: Target | None = None) -> int:
    """How many tokens a drafter drafts in a step: as many as wanted, by default as many as it was made for.

    target: what it must fit, where that is known.

    Errors: `MTPCError` for a number that it cannot draft, a directory that is wrong, or a drafter of another target.
    """
    config = method_of(drafter).read_config(drafter)
    if target is not None:
        check_target(drafter, config, target)
    number: int = config.num_drafts if wanted is None else wanted
    check_drafts(config, number, "--num-drafts", drafter)
    return number


def speculative_values(drafter: Path, num_drafts: int) -> dict[str, Any]:
    """What vLLM's ``--speculative-config`` says.  Every draft method is served under the same method."""
    return {
        "method": "eagle",
        "model": str(drafter),
        "num_speculative_tokens": num_drafts,
        "draft_sample_method": "probabilistic",
    }


def speculative_config(drafter: Path, num_drafts: int) -> str:
    """The same as JSON."""
    return json.dumps(speculative_values(drafter, num_drafts), separators=(",", ":"))


def speculative_arguments(drafter: Path) -> list[str]:
    """SGLang's arguments: its algorithm is the draft method's, and steps must not overlap where drafts are copied.

    Errors: `MTPCError` for a directory that holds no drafter.
    """
    method = method_of(drafter)
    arguments = ["--speculative-algorithm", method.algorithm, "--speculative-draft-model-path", str(drafter)]
    only_copies = not method.read_config(drafter).own_drafts
    return [*arguments, "--disable-overlap-schedule"] if only_copies else arguments
