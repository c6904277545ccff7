"""Checks vLLM's settings for a drafter of this project; each error is one sentence."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from vllm import envs

from mtpc.autoregressive.config import LayersConfig
from mtpc.errors import MTPCError
from mtpc.files.hub import CONFIG, is_hub_id, local_folder
from mtpc.files.json_file import is_folder
from mtpc.files.target import Target
from mtpc.methods import method_of, recognize, recognize_or_none
from mtpc.methods.drafter import (
    check_drafts,
    draft_vocabularies,
    drafts_through_target_head,
    load_drafter,
    split_drafts,
)
from mtpc.prompt_lookup.table import CopyTable
from vllm_mtpc import integration_points
from vllm_mtpc.additional_config import (
    SECTION,
    check_reads_text,
    check_section,
    uses_prompt_lookup,
    v1_uses_prompt_lookup,
    v2_uses_prompt_lookup,
    vocabulary_values,
)
from vllm_mtpc.dispatch import drafter_of, folder_of, serves

METHOD = "eagle"
SAMPLE_METHODS = ("greedy", "probabilistic")
# Settings that these drafters do not support, and the only value that each may have.
FIXED = {
    "parallel_drafting": False,
    "use_heterogeneous_vocab": False,
    "use_local_argmax_reduction": False,
    "enable_adaptive_verification": False,
    "disable_padded_drafter_batch": False,
    "quantization": None,
    "draft_lm_head_quantization": None,
}
RANKS, KEEP_BLOCK = "draft_tensor_parallel_size", "disable_eagle_block_drop"
STANDARD = "standard"


def check_settings(
    settings: dict[str, Any],
    target: Any,
    additional: Mapping[str, Any] | None = None,
    pipeline_stages: int = 1,
    ranks: int = 1,
) -> dict[str, Any]:
    """Check the speculative settings and the drafter checkpoint that they name; other drafters pass unchecked.

    Args:
        settings: The keys of speculative-config that the user has set.
        target: vLLM's ``ModelConfig`` of the target.
        additional: vLLM's additional-config.
        pipeline_stages: ``pipeline_parallel_size``.
        ranks: ``tensor_parallel_size``.

    Returns:
        Keys to add to the settings.

    Raises:
        MTPCError: A setting or the checkpoint is wrong, or the installed vLLM lacks an integration point.
    """
    folder = drafter_folder(settings)
    if folder is None:
        return {}
    check_section(additional)
    # The folder of a snapshot from the Hub is named by its commit.
    pinned = {"revision": folder.name} if is_hub_id(settings["model"]) else {}
    method = method_of(folder)
    config = method.read_config(folder)
    autoregressive = config.autoregressive
    if method.reads_text:
        check_reads_text(additional, folder)
    reads_head = drafts_through_target_head(method, config)
    copying, parallel = uses_prompt_lookup(additional, not config.own_drafts), config.draft_steps is not None
    for problem in integration_points.problems(
        autoregressive=autoregressive is not None,
        head=autoregressive is not None or reads_head,
        parallel=parallel,
        prompt_lookup=copying,
        state=autoregressive is not None and autoregressive.state_below is not None,
        text=method.reads_text,
    ):
        raise MTPCError(problem)
    served = target_of(target)
    load_drafter(folder, served)
    _check_keys(settings)
    check_verification(settings.get("rejection_sample_method", STANDARD))
    if settings.get("method") != METHOD:
        raise MTPCError(f"{folder} is {method.title}: its method must be {METHOD!r}, not {settings.get('method')!r}.")
    if pipeline_stages > 1:
        raise MTPCError(
            f"pipeline_parallel_size must be 1, not {pipeline_stages}: {folder} is served with all of the target's "
            f"layers in one stage."
        )
    drafts: Any = settings.get("num_speculative_tokens")
    check_drafts(config, drafts, "num_speculative_tokens", folder, copying)
    if integration_points.runners() == {integration_points.V2}:  # else `check_complete`, once vLLM has chosen
        v2_uses_prompt_lookup(additional, config.own_drafts, drafts, folder)
    if copying:
        CopyTable.of(folder)
    if vocabulary_values(additional) and autoregressive is None and not reads_head:
        raise MTPCError(
            f"additional-config {SECTION} sets a draft vocabulary, which requires a drafter that drafts through the "
            f"target's output head, but {folder} does not: remove it."
        )
    added: dict[str, Any] = {}
    if autoregressive is None:
        added = _check_parallel_only(folder, settings)
    else:
        _check_autoregressive(folder, autoregressive, settings, ranks)
    draft_vocabularies(vocabulary_values(additional), folder, method, config)
    return added | pinned


def check_is_no_target(settings: dict[str, Any], target: Any) -> None:
    """Reject the target as its own EAGLE drafter, which vLLM fails to load.

    Args:
        settings: The keys of speculative-config that the user has set.
        target: vLLM's ``ModelConfig`` of the target.

    Raises:
        MTPCError: It is named in speculative-config as well.
    """
    model = settings.get("model")
    if settings.get("method") == METHOD and isinstance(model, str | Path) and str(model) == str(target.model):
        raise MTPCError(f"the 'model' of speculative-config is {model}, which is the target: name a drafter there.")


def check_is_target(model: Any) -> None:
    """Reject a drafter of this project as the target, before vLLM looks for its tokenizer.

    Args:
        model: ``--model`` as the user typed it.

    Raises:
        MTPCError: It is a drafter.
    """
    if isinstance(model, str | Path) and (method := recognize_or_none(model)) is not None:
        raise MTPCError(
            f"--model {model} is {method.title}, but a target was expected: name the drafter in --speculative-config."
        )


def check_complete(vllm_config: Any) -> None:
    """Check what vLLM decides after `check_settings`: the model runner, asynchronous scheduling and watermarks.

    Args:
        vllm_config: vLLM's complete ``VllmConfig``; one without a drafter of this project passes.

    Raises:
        MTPCError: A setting does not fit the chosen runner or scheduling, or draft tokens would lack the watermark.
    """
    if vllm_config.speculative_config is None or not serves(vllm_config):
        return
    method, config = drafter_of(vllm_config)
    speculative, additional = vllm_config.speculative_config, vllm_config.additional_config
    _check_watermark(vllm_config, split_drafts(config, speculative.num_speculative_tokens)[0])
    if vllm_config.model_config.enable_prompt_embeds and not vllm_config.use_v2_model_runner:
        raise MTPCError("--enable-prompt-embeds does not fit drafters on vLLM's V1 model runner: remove it.")
    if method.reads_text:
        _check_text_runner(vllm_config)
    elif vllm_config.use_v2_model_runner:
        v2_uses_prompt_lookup(additional, config.own_drafts, speculative.num_speculative_tokens, folder_of(vllm_config))
    else:
        async_scheduling = vllm_config.scheduler_config.async_scheduling
        v1_uses_prompt_lookup(additional, config.own_drafts, async_scheduling, integration_points.on_cpu())


def target_of(model_config: Any) -> Target:
    """Return the target's sizes, which a drafter must match.

    Args:
        model_config: vLLM's ``ModelConfig`` of the target.

    Returns:
        Hidden size, vocabulary size and number of layers.
    """
    layers = model_config.get_total_num_hidden_layers()
    return Target(model_config.get_hidden_size(), model_config.get_vocab_size(), layers)


def _check_parallel_only(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Check the settings of a drafter without an autoregressive part, which is not sharded over ranks.

    It has no keys and values either, so vLLM need not compute the last block of a cached prefix again for them.
    """
    if settings.get(RANKS) not in (None, 1):
        raise MTPCError(f"{RANKS} is {settings[RANKS]!r}, but {folder} is not sharded over ranks: set it to 1.")
    return {RANKS: 1, KEEP_BLOCK: settings.get(KEEP_BLOCK, True)}


def _check_autoregressive(folder: Path, autoregressive: LayersConfig, settings: dict[str, Any], ranks: int) -> None:
    """Check the settings of a drafter with an autoregressive part, which is sharded over the target's ranks."""
    heads = autoregressive.num_attention_heads
    if autoregressive.layer == "qwen2" and autoregressive.head_dim * heads != autoregressive.hidden_size:
        raise MTPCError(
            f"{folder} has {heads} heads with a head_dim of {autoregressive.head_dim}, but vLLM's qwen2 layer requires "
            f"a head_dim of hidden_size / num_attention_heads."
        )
    if settings.get(RANKS) not in (None, ranks):
        raise MTPCError(
            f"{RANKS} is {settings[RANKS]!r}, but {folder} is sharded over all {ranks} ranks: set it to {ranks}."
        )
    autoregressive.check_ranks(ranks, folder)


def _check_text_runner(vllm_config: Any) -> None:
    """Check that a drafter which reads the request's text is served by the V1 runner, with tokens on the host."""
    reads_text = f"{folder_of(vllm_config)} drafts from the request's text"
    if vllm_config.use_v2_model_runner:
        raise MTPCError(f"{reads_text}, which requires the V1 model runner: set VLLM_USE_V2_MODEL_RUNNER=0.")
    if vllm_config.model_config.enable_sleep_mode:
        raise MTPCError(f"{reads_text}; its draft model would be lost in sleep mode: remove --enable-sleep-mode.")
    if vllm_config.scheduler_config.async_scheduling:
        raise MTPCError(f"{reads_text}, which requires synchronous scheduling: add --no-async-scheduling.")


def _check_watermark(vllm_config: Any, autoregressive_drafts: int) -> None:
    """Reject a watermark unless vLLM draws all draft tokens, or the user accepts draft tokens without it."""
    watermark = vllm_config.watermark_config
    if watermark is None or watermark.allow_target_only_watermarking:
        return
    if autoregressive_drafts < vllm_config.speculative_config.num_speculative_tokens:
        raise MTPCError(
            f"watermark-config does not mark all draft tokens of {folder_of(vllm_config)}: add "
            f'"allow_target_only_watermarking": true, or remove the drafter.'
        )


def check_verification(method: Any) -> None:
    """Reject verification methods that are not known to be lossless, or not available on this device.

    Args:
        method: ``rejection_sample_method`` of speculative-config.

    Raises:
        MTPCError: It is neither "standard" nor "synthetic", which is for measurements; or it is "synthetic" on a CPU.
    """
    if method == "block":
        raise MTPCError(
            "rejection_sample_method is 'block', which is not lossless, because vLLM uses the same random numbers in "
            "two decoding steps: use 'standard'."
        )
    if method not in (STANDARD, "synthetic"):
        raise MTPCError(f"rejection_sample_method is {method!r}, which is not known to be lossless: use 'standard'.")
    if method == "synthetic" and integration_points.on_cpu():
        raise MTPCError("rejection_sample_method is 'synthetic', which vLLM supports on GPUs only: use 'standard'.")


def _check_keys(settings: dict[str, Any]) -> None:
    from vllm.config import SpeculativeConfig

    known = {field.name for field in dataclasses.fields(SpeculativeConfig)}
    for key, value in settings.items():
        if key not in known:
            similar = get_close_matches(str(key), known, n=1)
            hint = f"; did you mean {similar[0]}" if similar else ""
            raise MTPCError(f"speculative-config has no key {key!r}{hint}.")
        if key in FIXED and value != FIXED[key]:
            raise MTPCError(f"{key} is {value!r}, but with this drafter it must be {FIXED[key]!r}.")
    method = settings.get("draft_sample_method", SAMPLE_METHODS[0])
    if method not in SAMPLE_METHODS:
        raise MTPCError(f"draft_sample_method must be one of {', '.join(SAMPLE_METHODS)}, not {method!r}.")


def drafter_folder(settings: dict[str, Any]) -> Path | None:
    """Find the folder of the drafter checkpoint.

    The architecture in config.json decides whether it is a drafter of this project; only this file is downloaded to
    find out.  A checkpoint that cannot be read would fail in vLLM as well; with the method "eagle" it fails here.

    Args:
        settings: The keys of speculative-config that the user has set.

    Returns:
        The folder; None if the settings name no drafter of this project.

    Raises:
        MTPCError: The checkpoint cannot be read, see `mtpc.files.hub.local_folder`.
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
