"""What SGLang's settings must be for a drafter of any draft method; each error is one sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mtpc.errors import MTPCError
from mtpc.files.hub import is_hub_id
from mtpc.files.target import Target
from mtpc.methods import DraftMethod, draft_methods, method_of, recognize_or_none
from mtpc.methods.drafter import draft_vocabularies, load_drafter
from mtpc.parallel.part import NO_TREES, ParallelPart
from mtpc.prompt_lookup.table import CopyTable
from sglang_mtpc import integration_points
from sglang_mtpc.native_settings import check_native
from sglang_mtpc.shape import Shape, draft_shape, flag
from sglang_mtpc.token_map import copies, read, vocabulary_values

# SGLang's speculative settings that mean something for our drafters; the others are to be left alone.
HEEDED = {
    "speculative_algorithm",
    "speculative_attention_mode",
    "speculative_draft_model_path",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "speculative_num_steps",
    "speculative_use_rejection_sampling",
}
REVISION = "speculative_draft_model_revision"  # means something where the drafter is a Hugging Face id
MAP = (
    "speculative_token_map"  # means something for an autoregressive part, and where drafts are copied or nodes borrowed
)
# Other settings that drafting cannot honour, or that would not be lossless with it, and what each must be.
FIXED = {
    "disaggregation_mode": "null",
    "enable_custom_logit_processor": False,
    "enable_dp_attention": False,
    "enable_multi_layer_eagle": False,
    "enable_pdmux": False,
    "enable_return_hidden_states": False,
    "enable_unified_memory": False,  # its slots are translated, which our part of SGLang's loop is not told of
    "enable_watermark": False,
    "pp_size": 1,
    "use_ray": False,  # SGLang loads no plugins in Ray's actors
}
AT_LEAST_ONE = ("tp_size", "max_running_requests")
SAME = {"speculative_draft_model_quantization": "unquant"}  # SGLang's word for what a drafter is in any case
TREE_ATTENTION = ("flashinfer", "fa3", "triton")  # on a GPU: they verify trees with pages of any size


def check_settings(settings: Any, given: Any, target: Callable[[], Any]) -> None:
    """Check the settings and the drafter checkpoint they name; what is not meant for our drafters passes.

    settings: SGLang's server arguments as resolved so far.  given: the same as the user gave them.  target: SGLang's
    ``ModelConfig`` of the target, made when it is needed.
    Errors: `MTPCError` with one sentence.
    """
    if (itself := recognize_or_none(settings.model_path)) is not None:
        raise MTPCError(f"--model-path {settings.model_path} is {itself.title}, but a target was expected.")
    folder, algorithm = settings.speculative_draft_model_path, (settings.speculative_algorithm or "").upper()
    method = None if folder is None else recognize_or_none(folder)
    if method is not None and method.algorithm != algorithm:
        raise MTPCError(
            f"{folder} is {method.title}: --speculative-algorithm must be {method.algorithm}, "
            f"not {settings.speculative_algorithm}."
        )
    if not is_ours(settings):
        check_native(settings, target)
        return
    if folder is None:
        raise MTPCError(
            f"--speculative-algorithm {algorithm} needs --speculative-draft-model-path, a drafter's folder or "
            "Hugging Face id."
        )
    for key in AT_LEAST_ONE:
        if (value := getattr(settings, key)) is not None and value < 1:
            raise MTPCError(f"{flag(key)} is {value}, but it must be at least 1.")
    method = method_of(folder)
    config = method.read_config(Path(folder))
    shape, model = draft_shape(settings, config), target()
    drafter = load_drafter(folder, Target(model.hidden_size, model.vocab_size, model.num_hidden_layers))
    vocabularies = None
    token_map = settings.speculative_token_map
    values, copied = vocabulary_values(token_map), copies(token_map, not config.own_drafts)
    if copied:
        _check_copying(settings, shape, folder)
    if config.autoregressive is not None:
        vocabularies = draft_vocabularies(values, Path(folder), config)
        config.autoregressive.check_ranks(settings.tp_size, folder)
    used = integration_points.groups_used(config, settings.device, vocabularies is not None, copied)
    for problem in integration_points.problems(used):
        raise MTPCError(problem)
    meant = {
        MAP: config.autoregressive is not None or not values,
        REVISION: is_hub_id(given.speculative_draft_model_path),
    }
    _check_fixed(given, _defaults(given, HEEDED | {key for key, means in meant.items() if means}), method)
    _check_fixed(settings, FIXED, method)
    if shape.children > 1:
        _check_tree(settings, drafter.parallel if drafter.split(shape.depth)[1] else None)


def is_ours(settings: Any) -> bool:
    """Return whether the algorithm is that of a draft method of the registry."""
    return (settings.speculative_algorithm or "").upper() in {method.algorithm for method in draft_methods()}


def _check_copying(settings: Any, shape: Shape, folder: str) -> None:
    """Whether drafts can be copied from the request's own text.

    Errors: `MTPCError`.
    """
    if shape.children > 1:
        raise MTPCError("copying makes chains, but the settings ask for a tree of drafts.")
    sets_it = settings.device == "cpu" and read(settings.speculative_token_map).adaptive  # see `complete_settings`
    if not settings.disable_overlap_schedule and not sets_it:
        raise MTPCError("copying reads what was said a step ago: it needs --disable-overlap-schedule.")
    CopyTable.of(Path(folder))


def _defaults(given: Any, heeded: set[str]) -> dict[str, Any]:
    """SGLang's defaults of the speculative settings that mean nothing for a drafter."""
    plain = type(given)(model_path=given.model_path)
    names = {name for name in dir(plain) if name.startswith("speculative_")} - heeded
    return {name: getattr(plain, name) for name in sorted(names)}


def _check_fixed(settings: Any, fixed: Mapping[str, Any], method: DraftMethod) -> None:
    for key, expected in fixed.items():
        value = getattr(settings, key, expected)
        if value not in (expected, SAME.get(key, expected)):
            raise MTPCError(f"{flag(key)} is {value!r}, but with {method.title} it must be {expected!r}.")


def _check_tree(settings: Any, parallel: ParallelPart | None) -> None:
    if parallel is not None and not parallel.drafts_trees:
        raise MTPCError(NO_TREES)
    if settings.speculative_use_rejection_sampling:
        raise MTPCError(
            "--speculative-use-rejection-sampling is for chains; with a tree of drafts it must be left out."
        )
    for phase in ("prefill", "decode") if settings.device != "cpu" else ():
        backend = getattr(settings, f"{phase}_attention_backend") or settings.attention_backend
        if backend not in TREE_ATTENTION:
            raise MTPCError(
                f"the attention backend {backend} does not verify trees: for these "
                f"{flag('attention_backend')} must be one of {', '.join(TREE_ATTENTION)}."
            )
