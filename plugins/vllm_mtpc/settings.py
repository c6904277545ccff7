"""What vLLM's speculative settings must be for an MTPC drafter; each error is one sentence."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from mtpc.drafter import Target, load_drafter
from mtpc.drafter.config import describes_a_drafter
from mtpc.errors import MTPCError
from vllm_mtpc import touch_points

METHOD = "eagle"
SAMPLE_METHODS = ("greedy", "probabilistic")
# Settings that a one-shot drafter has no use for or cannot honour, and the one value each may have.
FIXED = {
    "parallel_drafting": False,
    "use_heterogeneous_vocab": False,
    "use_local_argmax_reduction": False,
    "enable_adaptive_verification": False,
    "quantization": None,
}


def check_settings(settings: dict[str, Any], target: Any) -> None:
    """Check the settings and the drafter directory they name; anything that is not an MTPC drafter passes.

    target: vLLM's ``ModelConfig`` of the target.  Errors: `MTPCError` with one sentence.
    """
    folder = drafter_folder(settings)
    if folder is None:
        return
    for problem in touch_points.problems():
        raise MTPCError(problem)
    drafter = load_drafter(folder, Target(target.get_hidden_size(), target.get_vocab_size()))
    _check_keys(settings)
    if settings.get("method") != METHOD:
        raise MTPCError(f"{folder} is an MTPC drafter: its method must be {METHOD!r}, not {settings.get('method')!r}.")
    drafts = settings.get("num_speculative_tokens")
    if type(drafts) is not int or not 1 <= drafts <= drafter.max_drafts:
        window = drafter.config.window
        raise MTPCError(
            f"num_speculative_tokens is {drafts!r}, but {folder} has a window of {window} tokens, "
            f"so it must be a whole number from 1 to {drafter.max_drafts}."
        )


def _check_keys(settings: dict[str, Any]) -> None:
    from vllm.config import SpeculativeConfig

    known = {field.name for field in dataclasses.fields(SpeculativeConfig)}
    for key, value in settings.items():
        if key not in known:
            raise MTPCError(f"speculative-config has no key {key!r}.")
        if key in FIXED and value != FIXED[key]:
            raise MTPCError(f"{key} is {value!r}, but with an MTPC drafter it must be {FIXED[key]!r}.")
    method = settings.get("draft_sample_method", SAMPLE_METHODS[0])
    if method not in SAMPLE_METHODS:
        raise MTPCError(f"draft_sample_method must be one of {', '.join(SAMPLE_METHODS)}, not {method!r}.")


def drafter_folder(settings: dict[str, Any]) -> Path | None:
    """The directory that the settings name, if it is an MTPC drafter or a broken directory that could be one.

    A directory whose config.json can be read belongs to MTPC if that says so.  One without, and a path that does
    not exist but cannot be a name on a model hub, would fail in vLLM too: they are taken here, to say it briefly.
    """
    model = settings.get("model")
    if not isinstance(model, str | Path):
        return None
    folder = Path(model)
    ours = describes_a_drafter(folder)
    if ours is None:
        ours = settings.get("method") == METHOD and (folder.is_dir() or _is_local(str(model)))
    return folder if ours else None


def _is_local(name: str) -> bool:
    """Whether a name must mean a local path: hub names are "owner/model", and here no folder is called "owner"."""
    parts = Path(name).parts
    return not parts or len(parts) != 2 or parts[0] in ("/", ".", "..", "~") or Path(parts[0]).is_dir()
