"""What vLLM's speculative settings must be for a drafter of ours; each error is one sentence."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mtpc.drafter import Target, load_drafter
from mtpc.drafter.config import describes_a_drafter
from mtpc.errors import MTPCError
from mtpc.fastmtp.config import describes_a_drafter as describes_fastmtp
from mtpc.fastmtp.directory import load_layer
from mtpc.vocabulary.settings import open_vocabularies
from vllm_mtpc import touch_points

METHOD = "eagle"
SAMPLE_METHODS = ("greedy", "probabilistic")
SECTION = "mtpc"  # of vLLM's additional-config: the settings of the draft vocabulary
# Settings that our drafters have no use for or cannot honour, and the one value each may have.
FIXED = {
    "parallel_drafting": False,
    "use_heterogeneous_vocab": False,
    "use_local_argmax_reduction": False,
    "enable_adaptive_verification": False,
    "quantization": None,
}
FASTMTP_FIXED = FIXED | {"disable_padded_drafter_batch": False}


def check_settings(
    settings: dict[str, Any], target: Any, additional: Mapping[str, Any] | None = None, pipeline_stages: int = 1
) -> None:
    """Check the settings and the drafter directory they name; anything that is not a drafter of ours passes.

    target: vLLM's ``ModelConfig`` of the target.  additional: vLLM's additional-config.
    Errors: `MTPCError` with one sentence.
    """
    folder = drafter_folder(settings)
    if folder is None:
        return
    for problem in touch_points.problems():
        raise MTPCError(problem)
    served = target_of(target)
    if describes_fastmtp(folder):
        _check_fastmtp(folder, settings, served, additional or {}, pipeline_stages)
    else:
        _check_mtpc(folder, settings, served, additional or {})


def target_of(model_config: Any) -> Target:
    """What a drafter must fit, of vLLM's ``ModelConfig``."""
    return Target(model_config.get_hidden_size(), model_config.get_vocab_size())


def _check_mtpc(folder: Path, settings: dict[str, Any], target: Target, additional: Mapping[str, Any]) -> None:
    drafter = load_drafter(folder, target)
    _check_keys(settings, FIXED)
    _check_method(folder, settings, "an MTPC drafter")
    if additional.get(SECTION):
        raise MTPCError(f"the {SECTION!r} in additional-config is for FastMTP drafters, but {folder} is none.")
    drafts = settings.get("num_speculative_tokens")
    if type(drafts) is not int or not 1 <= drafts <= drafter.max_drafts:
        window = drafter.config.window
        raise MTPCError(
            f"num_speculative_tokens is {drafts!r}, but {folder} has a window of {window} tokens, "
            f"so it must be a whole number from 1 to {drafter.max_drafts}."
        )


def _check_fastmtp(
    folder: Path, settings: dict[str, Any], target: Target, additional: Mapping[str, Any], pipeline_stages: int
) -> None:
    config = load_layer(folder, target).config
    if config.layer == "qwen2" and config.head_dim * config.num_attention_heads != config.hidden_size:
        raise MTPCError(
            f"{folder} has {config.num_attention_heads} heads of {config.head_dim}, but vLLM's qwen2 layer "
            f"needs a head_dim of hidden_size / num_attention_heads."
        )
    _check_keys(settings, FASTMTP_FIXED)
    _check_method(folder, settings, "a FastMTP drafter")
    drafts = settings.get("num_speculative_tokens")
    if type(drafts) is not int or drafts < 1:
        raise MTPCError(f"num_speculative_tokens is {drafts!r}, but it must be a whole number of at least 1.")
    if pipeline_stages > 1:
        raise MTPCError("a FastMTP drafter shares the target's embedding, so pipeline_parallel_size must be 1.")
    open_vocabularies(vocabulary_values(additional), folder, target.vocab_size)


def vocabulary_values(additional: Any) -> dict[str, Any]:
    """The settings of the draft vocabulary in vLLM's additional-config.

    Errors: `MTPCError` where they are no object of JSON.
    """
    values = additional.get(SECTION, {}) if isinstance(additional, Mapping) else {}
    if not isinstance(values, dict):
        raise MTPCError(f"the {SECTION!r} in additional-config must be an object of JSON, but is {values!r}.")
    return values


def _check_method(folder: Path, settings: dict[str, Any], title: str) -> None:
    if settings.get("method") != METHOD:
        raise MTPCError(f"{folder} is {title}: its method must be {METHOD!r}, not {settings.get('method')!r}.")


def _check_keys(settings: dict[str, Any], fixed: dict[str, Any]) -> None:
    from vllm.config import SpeculativeConfig

    known = {field.name for field in dataclasses.fields(SpeculativeConfig)}
    for key, value in settings.items():
        if key not in known:
            raise MTPCError(f"speculative-config has no key {key!r}.")
        if key in fixed and value != fixed[key]:
            raise MTPCError(f"{key} is {value!r}, but with this drafter it must be {fixed[key]!r}.")
    method = settings.get("draft_sample_method", SAMPLE_METHODS[0])
    if method not in SAMPLE_METHODS:
        raise MTPCError(f"draft_sample_method must be one of {', '.join(SAMPLE_METHODS)}, not {method!r}.")


def drafter_folder(settings: dict[str, Any]) -> Path | None:
    """The directory that the settings name, if it is a drafter of ours or a broken directory that could be one.

    A directory whose config.json can be read is one if that says so.  One without, and a path that does
    not exist but cannot be a name on a model hub, would fail in vLLM too: they are taken here, to say it briefly.
    """
    model = settings.get("model")
    if not isinstance(model, str | Path):
        return None
    folder = Path(model)
    ours = describes_a_drafter(folder)
    if ours is False:
        ours = describes_fastmtp(folder)
    if ours is None:
        ours = settings.get("method") == METHOD and (folder.is_dir() or _is_local(str(model)))
    return folder if ours else None


def _is_local(name: str) -> bool:
    """Whether a name must mean a local path: hub names are "owner/model", and here no folder is called "owner"."""
    parts = Path(name).parts
    return not parts or len(parts) != 2 or parts[0] in ("/", ".", "..", "~") or Path(parts[0]).is_dir()
