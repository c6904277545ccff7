"""What vLLM's settings must be for a drafter of ours; each error is one sentence."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vllm import envs

from mtpc.autoregressive.config import AutoregressiveConfig
from mtpc.errors import MTPCError
from mtpc.files.hub import CONFIG, is_hub_id, local_folder
from mtpc.files.json_file import is_folder
from mtpc.files.target import Target
from mtpc.methods import method_of, recognize, recognize_or_none
from mtpc.methods.drafter import check_drafts, draft_vocabularies, load_drafter
from mtpc.prompt_lookup.table import CopyTable
from vllm_mtpc import integration_points
from vllm_mtpc.additional import SECTION, copies, v1_copies, v2_copies, vocabulary_values
from vllm_mtpc.dispatch import drafter_of, folder_of, serves

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
    """Check the settings and the drafter checkpoint they name; anything that is not a drafter of ours passes.

    target: vLLM's ``ModelConfig`` of the target.  additional: vLLM's additional-config.  ranks: tensor-parallel ones.
    Returns what is to be added to the settings.

    Errors: `MTPCError` with one sentence.
    """
    folder = drafter_folder(settings)
    if folder is None:
        return {}
    pinned = {"revision": folder.name} if is_hub_id(settings["model"]) else {}  # a snapshot is called by its commit
    method = method_of(folder)
    config = method.read_config(folder)
    autoregressive = config.autoregressive
    copying, parallel = copies(additional, not config.own_drafts), config.draft_steps is not None
    for problem in integration_points.problems(
        autoregressive=autoregressive is not None,
        parallel=parallel,
        copying=copying,
        state=autoregressive is not None and autoregressive.state_below is not None,
    ):
        raise MTPCError(problem)
    served = target_of(target)
    load_drafter(folder, served)
    _check_keys(settings)
    check_verification(settings.get("rejection_sample_method"))
    if settings.get("method") != METHOD:
        raise MTPCError(f"{folder} is {method.title}: its method must be {METHOD!r}, not {settings.get('method')!r}.")
    if pipeline_stages > 1:
        raise MTPCError(f"{folder} drafts beside the whole target, so pipeline_parallel_size must be 1.")
    drafts: Any = settings.get("num_speculative_tokens")
    check_drafts(config, drafts, "num_speculative_tokens", folder, copying)
    if integration_points.runners() == {integration_points.V2}:  # where it may be either, vLLM decides after this
        v2_copies(additional, config, drafts, folder)
    if copying:
        CopyTable.of(folder)
    if autoregressive is None:
        return _check_window(folder, settings, additional or {}) | pinned
    _check_autoregressive(folder, autoregressive, settings, ranks)
    draft_vocabularies(vocabulary_values(additional), folder, config)
    return pinned


def check_is_target(model: Any) -> None:
    """Refuse a drafter of ours as the model, before vLLM looks for its tokenizer.

    model: as the user named it.

    Errors: `MTPCError`.
    """
    if isinstance(model, str | Path) and (method := recognize_or_none(model)) is not None:
        raise MTPCError(f"--model {model} is {method.title}, but a target was expected.")


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
        v2_copies(additional, config, speculative.num_speculative_tokens, folder_of(vllm_config))
    else:
        overlaps = vllm_config.scheduler_config.async_scheduling
        v1_copies(additional, config, overlaps, integration_points.on_cpu())


def target_of(model_config: Any) -> Target:
    """What a drafter must fit, of vLLM's ``ModelConfig``."""
    layers = model_config.get_total_num_hidden_layers()
    return Target(model_config.get_hidden_size(), model_config.get_vocab_size(), layers)


def _check_window(folder: Path, settings: dict[str, Any], additional: Mapping[str, Any]) -> dict[str, Any]:
    """What only a drafter without an autoregressive part needs, which is whole on every rank."""
    if vocabulary_values(additional):
        raise MTPCError(
            f"the {SECTION!r} in additional-config is for drafters with an autoregressive part, but {folder} has none."
        )
    if settings.get(RANKS) not in (None, 1):
        raise MTPCError(f"{RANKS} is {settings[RANKS]!r}, but {folder} is whole on every rank, so it must be 1.")
    return {RANKS: 1}


def _check_autoregressive(
    folder: Path, autoregressive: AutoregressiveConfig, settings: dict[str, Any], ranks: int
) -> None:
    """What only a drafter with an autoregressive part needs, whose layer is shared out over the target's ranks."""
    heads = autoregressive.num_attention_heads
    if autoregressive.layer == "qwen2" and autoregressive.head_dim * heads != autoregressive.hidden_size:
        raise MTPCError(
            f"{folder} has {heads} heads of {autoregressive.head_dim}, but vLLM's qwen2 layer "
            f"needs a head_dim of hidden_size / num_attention_heads."
        )
    if settings.get(RANKS) not in (None, ranks):
        raise MTPCError(f"{RANKS} is {settings[RANKS]!r}, but {folder} is shared out over all {ranks} ranks.")
    autoregressive.check_ranks(ranks, folder)


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
    """Return the folder of the drafter that the settings name; None: it is not one of ours.

    A checkpoint is ours if its config.json says so, which is all that is downloaded to find out.  What cannot be read
    would fail in vLLM as well: with our method it is refused here, in one sentence.

    Raises:
        MTPCError: See `mtpc.files.hub.local_folder`.
    """
    model, method, revision = settings.get("model"), settings.get("method"), settings.get("revision")
    if not isinstance(model, str | Path):
        return None
    if is_hub_id(model):
        if method not in (METHOD, None) or envs.VLLM_USE_MODELSCOPE:
            return None
        try:
            folder = local_folder(model, revision, CONFIG)
        except MTPCError:
            if method is None:
                return None
            raise
        return None if recognize_or_none(folder) is None else local_folder(model, revision)
    folder = Path(model)
    try:
        return None if recognize(folder) is None else folder
    except MTPCError:
        is_path = is_folder(folder) or ":" not in str(model)  # neither a URI nor a GGUF file of a repository
        return folder if method == METHOD and is_path else None
