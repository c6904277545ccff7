"""Checks of SGLang's settings for drafters of any draft method; each error is one sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mtpc.autoregressive.config import LayersConfig
from mtpc.autoregressive.lora import ATTENTION_MODULES, LoRALayersConfig
from mtpc.errors import MTPCError
from mtpc.files.hub import is_hub_id
from mtpc.files.target import Target
from mtpc.methods import DrafterConfig, DraftMethod, draft_methods, method_of, recognize_or_none
from mtpc.methods.drafter import draft_vocabularies, drafts_through_target_head, load_drafter
from mtpc.parallel.part import NO_TREES, ParallelPart
from mtpc.parallel.tree import level_widths
from mtpc.prompt_lookup.table import CopyTable
from mtpc.vocabulary.vocabularies import DraftVocabularies
from sglang_mtpc import integration_points
from sglang_mtpc.native_settings import NO_OVERLAP, check_native
from sglang_mtpc.shape import TOPK, DraftShape, draft_shape, flag
from sglang_mtpc.token_map import copies, read, vocabulary_values

# SGLang's speculative settings that drafters of this project use; the others must keep their defaults.
USED_SETTINGS = {
    "speculative_adaptive",
    "speculative_algorithm",
    "speculative_attention_mode",
    "speculative_draft_model_path",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "speculative_num_steps",
    "speculative_use_rejection_sampling",
}
REVISION = "speculative_draft_model_revision"  # used if the drafter is a Hugging Face id
ADAPTIVE_CONFIG = "speculative_adaptive_config"  # used if SGLang adapts the draft length
MAP_SETTING = "speculative_token_map"  # used by the target's output head, prompt lookup, draft lengths, trees
# Other settings that are not supported with drafters, or would not be lossless, and their required values.
FIXED = {
    "disaggregation_mode": "null",
    "enable_custom_logit_processor": False,
    "enable_dp_attention": False,
    "enable_multi_layer_eagle": False,
    "enable_pdmux": False,
    "enable_return_hidden_states": False,
    "enable_unified_memory": False,  # translates slots, which `run_loop` does not
    "enable_watermark": False,
    "pp_size": 1,
}
FIXED_FOR_ADAPTIVE = {"enable_two_batch_overlap": False}  # likewise, where SGLang adapts the draft length
POSITIVE = ("tp_size", "max_running_requests")
FIXED_FOR_TEXT = {"speculative_adaptive": False, "speculative_eagle_topk": 1}  # with a text part, likewise
# Also allowed: drafters are never quantized, and draft chains unless the user asks for trees.
EQUIVALENT = {"speculative_draft_model_quantization": "unquant", "speculative_eagle_topk": None}
CPU_MLP_MULTIPLE = 32  # SGLang pads the target's MLP on a CPU to a multiple of it for each rank
TREE_ATTENTION = ("flashinfer", "fa3", "triton")  # backends on GPUs that verify trees with any page size


def check_settings(settings: Any, given: Any, target: Callable[[], Any]) -> DraftShape | None:
    """Check the settings and the drafter checkpoint; settings without a drafter of this project pass.

    Args:
        settings: SGLang's server arguments as resolved so far.
        given: SGLang's server arguments as the user gave them.
        target: Returns SGLang's ``ModelConfig`` of the target.

    Returns:
        The shape of the drafts; None without a drafter of this project.

    Raises:
        MTPCError: A setting or the checkpoint is wrong, or a tree has more nodes than a draft vocabulary allows; the
            message is one sentence.
    """
    if (drafts := recognize_or_none(settings.model_path)) is not None:
        raise MTPCError(f"--model-path {settings.model_path} is {drafts.title}, but a target was expected.")
    folder, algorithm = settings.speculative_draft_model_path, (settings.speculative_algorithm or "").upper()
    method = None if folder is None else recognize_or_none(folder)
    if method is not None and method.algorithm != algorithm:
        raise MTPCError(
            f"{folder} is {method.title}: --speculative-algorithm must be {method.algorithm}, "
            f"not {settings.speculative_algorithm}."
        )
    if not is_ours(settings):
        check_native(settings, target)
        return None
    if folder is None:
        raise MTPCError(
            f"--speculative-algorithm {algorithm} needs --speculative-draft-model-path, a drafter's folder or "
            "Hugging Face id."
        )
    for key in POSITIVE:
        if (value := getattr(settings, key)) is not None and value < 1:
            raise MTPCError(f"{flag(key)} is {value}, but it must be at least 1.")
    method = method_of(folder)
    config = method.read_config(Path(folder))
    if method.reads_text:
        _check_fixed(settings, FIXED_FOR_TEXT, method)
    shape, model = draft_shape(settings, config), target()
    drafter = load_drafter(folder, Target(model.hidden_size, model.vocab_size, model.num_hidden_layers))
    token_map = settings.speculative_token_map
    values, copied = vocabulary_values(token_map), copies(token_map, not config.own_drafts)
    if copied:
        _check_copying(settings, shape, folder, method.reads_text)
    vocabularies = draft_vocabularies(values, Path(folder), method, config)
    reads_head = drafts_through_target_head(method, config)
    if config.autoregressive is not None:
        _check_sharding(settings, config.autoregressive, folder)
    reads_tokens = copied or method.reads_text
    used = integration_points.groups_used(config, settings.device, vocabularies is not None, reads_tokens, reads_head)
    used |= integration_points.ADAPTED_GROUPS if settings.speculative_adaptive else set()
    for problem in integration_points.problems(used | integration_points.ray_groups(settings)):
        raise MTPCError(problem)
    used_if = {
        MAP_SETTING: config.autoregressive is not None or reads_head or not values,
        REVISION: is_hub_id(given.speculative_draft_model_path),
        ADAPTIVE_CONFIG: given.speculative_adaptive,
    }
    _check_fixed(given, _defaults(given, USED_SETTINGS | {key for key, is_used in used_if.items() if is_used}), method)
    _check_fixed(settings, FIXED | (FIXED_FOR_ADAPTIVE if settings.speculative_adaptive else {}), method)
    if shape.children > 1:
        _check_tree(settings, drafter.parallel if drafter.split(shape.depth)[1] else None)
        _check_room(shape, config, vocabularies)
    return shape


def is_ours(settings: Any) -> bool:
    """Return whether the algorithm is that of a draft method of the registry."""
    return (settings.speculative_algorithm or "").upper() in {method.algorithm for method in draft_methods()}


def _check_sharding(settings: Any, config: LayersConfig, folder: str) -> None:
    """Check that the layers can be sharded over the ranks.

    Raises:
        MTPCError: They cannot, or LoRA adapters are for fewer heads or a narrower MLP than SGLang gives the target on
            a CPU.
    """
    ranks = settings.tp_size
    config.check_ranks(ranks, folder)
    if settings.device != "cpu" or not isinstance(config, LoRALayersConfig):
        return
    if config.num_key_value_heads % ranks:
        raise MTPCError(
            f"{folder} has LoRA layers, which do not follow the heads that SGLang adds to the target for {ranks} ranks "
            f"on a CPU: choose a --tp-size that divides its {config.num_key_value_heads} key-value heads."
        )
    multiple = ranks * CPU_MLP_MULTIPLE
    if config.intermediate_size % multiple and not set(config.modules) <= set(ATTENTION_MODULES):
        raise MTPCError(
            f"{folder} has LoRA layers, which do not follow the columns that SGLang adds to the target's MLP on a CPU: "
            f"with --tp-size {ranks} its intermediate_size of {config.intermediate_size} must be a multiple of "
            f"{multiple}."
        )


def _check_copying(settings: Any, shape: DraftShape, folder: str, reads_text: bool) -> None:
    """Check that the settings allow prompt lookup.

    Raises:
        MTPCError: They ask for trees or overlapping steps, or the checkpoint's table is wrong.
    """
    if shape.children > 1:
        raise MTPCError(f"{TOPK} is {shape.children}, but with prompt lookup it must be 1: it drafts chains.")
    adapts = settings.device == "cpu" and read(settings.speculative_token_map).adaptive
    sets_it = adapts or reads_text  # see `complete_settings`
    if not settings.disable_overlap_schedule and not sets_it:
        raise MTPCError(NO_OVERLAP)
    CopyTable.of(Path(folder))


def _defaults(given: Any, used: set[str]) -> dict[str, Any]:
    """Return SGLang's defaults of the speculative settings that the drafter does not use."""
    plain = type(given)(model_path=given.model_path)
    names = {name for name in dir(plain) if name.startswith("speculative_")} - used
    return {name: getattr(plain, name) for name in sorted(names)}


def _check_fixed(settings: Any, fixed: Mapping[str, Any], method: DraftMethod) -> None:
    for key, expected in fixed.items():
        value = getattr(settings, key, expected)
        if value not in (expected, EQUIVALENT.get(key, expected)):
            needed = "left out" if expected is None else repr(expected)
            raise MTPCError(f"{flag(key)} is {value!r}, but with {method.title} it must be {needed}.")


def _check_room(shape: DraftShape, config: DrafterConfig, vocabularies: DraftVocabularies | None) -> None:
    """Check that a parallel part alone can draft a tree from each draft vocabulary, or raise `MTPCError`."""
    if vocabularies is not None and config.autoregressive is None:
        level_widths(shape.nodes, shape.depth, min(map(len, vocabularies.ids)), shape.children)


def _check_tree(settings: Any, parallel: ParallelPart | None) -> None:
    if parallel is not None and not parallel.drafts_trees:
        raise MTPCError(NO_TREES)
    if settings.speculative_use_rejection_sampling:
        raise MTPCError("--speculative-use-rejection-sampling is for chains; leave it out with draft trees.")
    for phase in ("prefill", "decode") if settings.device != "cpu" else ():
        backend = getattr(settings, f"{phase}_attention_backend") or settings.attention_backend
        if backend not in TREE_ATTENTION:
            raise MTPCError(
                f"The {phase} attention backend is {backend!r}, which does not verify draft trees: "
                f"{flag('attention_backend')} must be one of {', '.join(TREE_ATTENTION)}."
            )
