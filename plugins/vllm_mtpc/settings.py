"""What vLLM's settings must be for a drafter of ours; each error is one sentence."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mtpc.autoregressive.config import SerialConfig
from mtpc.errors import MTPCError
from mtpc.files.json_file import is_folder
from mtpc.files.target import Target
from mtpc.methods import family_of, recognise, recognised
from mtpc.methods.drafter import check_drafts, draft_vocabularies, load_drafter
from mtpc.prompt_lookup.table import CopyTable
from vllm_mtpc import integration_points
from vllm_mtpc.additional import SECTION, copies, v1_copies, v2_copies, vocabulary_values
from vllm_mtpc.dispatch import drafter_of, serves

METHOD = "eagle"
SAMPLE_METHODS = ("greedy", "probabilistic")
# Settings that our drafters have no use for or cannot honour, and the one value each may have.
FIXED = {
    "parallel_drafting": False,
    "use_heterogeneous_vocab": False,
    "use_local_argmax_reduction": False,
    "enable_adaptive_verification": False,
    "disable_padded_drafter_batch": False,
    "quantization": None,
    "draft_lm_head_quantization": None,
}
RANKS = "draft_tensor_parallel_size"


def check_settings(
    settings: dict[str, Any],
    target: Any,
    additional: Mapping[str, Any] | None = None,
    pipeline_stages: int = 1,
    ranks: int = 1,
) -> dict[str, Any]:
    """Check the settings and the drafter directory they name; anything that is not a drafter of ours passes.

    target: vLLM's ``ModelConfig`` of the target.  additional: vLLM's additional-config.  ranks: tensor-parallel ones.
    Returns what is to be added to the settings.

    Errors: `MTPCError` with one sentence.
    """
    folder = drafter_folder(settings)
    if folder is None:
        return {}
    family = family_of(folder)
    config = family.read_config(folder)
    serial = config.serial
    copying, window = copies(additional, not config.own_drafts), config.serial_steps is not None
    for problem in integration_points.problems(
        serial=serial is not None,
        window=window,
        copying=copying,
        state=serial is not None and serial.state_below is not None,
    ):
        raise MTPCError(problem)
    served = target_of(target)
    load_drafter(folder, served)
    _check_keys(settings)
    check_verification(settings.get("rejection_sample_method"))
    if settings.get("method") != METHOD:
        raise MTPCError(f"{folder} is {family.title}: its method must be {METHOD!r}, not {settings.get('method')!r}.")
    if pipeline_stages > 1:
        raise MTPCError(f"{folder} drafts beside the whole target, so pipeline_parallel_size must be 1.")
    drafts: Any = settings.get("num_speculative_tokens")
    check_drafts(config, drafts, "num_speculative_tokens", folder, copying)
    if integration_points.runners() == {integration_points.V2}:  # where it may be either, vLLM decides after this
        v2_copies(additional, config, drafts, folder)
    if copying:
        CopyTable.of(folder)
    if serial is None:
        return _check_window(folder, settings, additional or {})
    _check_serial(folder, serial, settings, ranks)
    draft_vocabularies(vocabulary_values(additional), folder, config)
    return {}


def check_is_target(model: Any) -> None:
    """Refuse a drafter of ours as the model, before vLLM looks for its tokenizer.

    model: as the user named it.

    Errors: `MTPCError`.
    """
    if isinstance(model, str | Path) and (family := recognised(model)) is not None:
        raise MTPCError(f"--model {model} is {family.title}, but a target was expected.")


def check_complete(vllm_config: Any) -> None:
    """Check what vLLM decides itself after `check_settings`: the model runner, and whether steps overlap.

    vllm_config: complete; one without a drafter of ours passes.

    Errors: `MTPCError` with one sentence.
    """
    if vllm_config.speculative_config is None or not serves(vllm_config):
        return
    _, config = drafter_of(vllm_config)
    speculative, additional = vllm_config.speculative_config, vllm_config.additional_config
    if vllm_config.use_v2_model_runner:
        folder = Path(speculative.draft_model_config.model)
        v2_copies(additional, config, speculative.num_speculative_tokens, folder)
    else:
        overlaps = vllm_config.scheduler_config.async_scheduling
        v1_copies(additional, config, overlaps, integration_points.on_cpu())


def target_of(model_config: Any) -> Target:
    """What a drafter must fit, of vLLM's ``ModelConfig``."""
    layers = model_config.get_total_num_hidden_layers()
    return Target(model_config.get_hidden_size(), model_config.get_vocab_size(), layers)


def _check_window(folder: Path, settings: dict[str, Any], additional: Mapping[str, Any]) -> dict[str, Any]:
    """What only a drafter without a serial part needs, which is whole on every rank."""
    if vocabulary_values(additional):
        raise MTPCError(
            f"the {SECTION!r} in additional-config is for drafters with a serial part, but {folder} has none."
        )
    if settings.get(RANKS) not in (None, 1):
        raise MTPCError(f"{RANKS} is {settings[RANKS]!r}, but {folder} is whole on every rank, so it must be 1.")
    return {RANKS: 1}


def _check_serial(folder: Path, serial: SerialConfig, settings: dict[str, Any], ranks: int) -> None:
    """What only a drafter with a serial part needs, whose layer is shared out over the target's ranks."""
    heads = serial.num_attention_heads
    if serial.layer == "qwen2" and serial.head_dim * heads != serial.hidden_size:
        raise MTPCError(
            f"{folder} has {heads} heads of {serial.head_dim}, but vLLM's qwen2 layer "
            f"needs a head_dim of hidden_size / num_attention_heads."
        )
    if settings.get(RANKS) not in (None, ranks):
        raise MTPCError(f"{RANKS} is {settings[RANKS]!r}, but {folder} is shared out over all {ranks} ranks.")
    serial.check_ranks(ranks, folder)


def check_verification(method: Any) -> None:
    """Refuse rejection_sample_method "block", which changes the text, and "synthetic" where vLLM does not have it.

    Errors: `MTPCError`.
    """
    if method == "block":
        raise MTPCError(
            "rejection_sample_method is 'block', which vLLM draws with random numbers that the next step draws with "
            "again: the text is not quite the target's, so it must be 'standard'."
        )
    if method == "synthetic" and integration_points.on_cpu():
        raise MTPCError("rejection_sample_method is 'synthetic', which vLLM has on GPUs only: use 'standard'.")


def _check_keys(settings: dict[str, Any]) -> None:
    from vllm.config import SpeculativeConfig

    known = {field.name for field in dataclasses.fields(SpeculativeConfig)}
    for key, value in settings.items():
        if key not in known:
            raise MTPCError(f"speculative-config has no key {key!r}.")
        if key in FIXED and value != FIXED[key]:
            raise MTPCError(f"{key} is {value!r}, but with this drafter it must be {FIXED[key]!r}.")
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
    try:
        return None if recognise(folder) is None else folder
    except MTPCError:
        broken = settings.get("method") == METHOD and (is_folder(folder) or _is_local(str(model)))
        return folder if broken else None


def _is_local(name: str) -> bool:
    """Whether a name must mean a local path: hub names are "owner/model", and here no folder is called "owner"."""
    parts = Path(name).parts
    return not parts or len(parts) != 2 or parts[0] in ("/", ".", "..", "~") or is_folder(parts[0])
