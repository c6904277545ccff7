"""Checks of SGLang's settings for draft vocabularies and prompt lookup with SGLang's own drafters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sglang.srt.arg_groups.overrides import declare_resolution, resolving_view
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

from mtpc.errors import MTPCError
from mtpc.prompt_lookup.table import CopyTable
from mtpc.vocabulary.settings import open_vocabularies
from sglang_mtpc import integration_points, token_map
from sglang_mtpc.hooks import put_around
from sglang_mtpc.shape import flag

STANDALONE = "STANDALONE"  # whole draft models
WITH_VOCABULARIES = ("EAGLE", "NEXTN")
ADAPTIVE = (*WITH_VOCABULARIES, "EAGLE3")  # whose draft length SGLang can adapt
ALGORITHMS = (*ADAPTIVE, STANDALONE)
NO_OVERLAP = "Prompt lookup requires --disable-overlap-schedule: it reads the tokens of the preceding step."
PACKAGE = "sglang_mtpc"  # names this plugin among those that set SGLang's arguments
HOOKED = "sglang.srt.speculative.spec_info.SpeculativeAlgorithm.create_worker"
HOOKED_SIZE = "sglang.srt.speculative.spec_info.SpeculativeAlgorithm.resolve_max_speculative_num_draft_tokens"
# Settings that change the order of a batch's rows, or use another draft worker, and their required values.
FIXED: Mapping[str, Any] = {
    "enable_dp_attention": False,
    "enable_multi_layer_eagle": False,
    "enable_pdmux": False,
    "pp_size": 1,
    "speculative_adaptive": False,
}
# Further ones with prompt lookup: SGLang must verify chains by rejection sampling with the stated distributions.
FIXED_FOR_COPYING: Mapping[str, Any] = {
    "disaggregation_mode": "null",
    "enable_deterministic_inference": False,
    "speculative_accept_threshold_acc": 1.0,
    "speculative_accept_threshold_single": 1.0,
    "speculative_eagle_topk": 1,
}


def is_plugin_token_map(text: str | None) -> bool:
    """Return whether a token map is for this project: one of SGLang's own is a single file of torch."""
    file, query, _ = (text or "").partition("?")
    return bool(query) or file.endswith((".json", ".safetensors"))


def check_native(settings: Any, target: Callable[[], Any]) -> None:
    """Check the settings of one of SGLang's own drafters if the token map is for this project.

    Args:
        settings: SGLang's server arguments as resolved so far.
        target: Returns SGLang's ``ModelConfig`` of the target.

    Raises:
        MTPCError: A setting is not supported; the message is one sentence.
    """
    text, algorithm = settings.speculative_token_map, _algorithm(settings)
    if algorithm not in {*ALGORITHMS, *SpeculativeAlgorithm.__members__} or not is_plugin_token_map(text):
        return
    values, name = token_map.read(text), f"--speculative-token-map is {text!r}"
    if algorithm not in ALGORITHMS:
        raise MTPCError(f"{name}, but of SGLang's own drafters only {_listed(ALGORITHMS)} support it, not {algorithm}.")
    if values.borrow:
        raise MTPCError(f"{name}, but 'borrow' requires a drafter of this project, not {algorithm}.")
    folder = Path(settings.speculative_draft_model_path or settings.model_path)
    vocabularies = open_vocabularies(token_map.vocabulary_values(text), folder, target().vocab_size)
    if vocabularies is not None:
        if algorithm not in WITH_VOCABULARIES:
            raise MTPCError(
                f"{name}, but of SGLang's own drafters only {_listed(WITH_VOCABULARIES)} support a draft vocabulary, "
                f"not {algorithm}; set its language to 'none'."
            )
        _check_fixed(settings, FIXED, "a draft vocabulary")
    groups = integration_points.NATIVE_GROUPS | integration_points.ray_groups(settings)
    if mixes_prompt_lookup(settings):
        _check_fixed(settings, {**FIXED, **FIXED_FOR_COPYING}, "prompt lookup")
        if settings.device != "cpu" and not settings.disable_overlap_schedule:  # SGLang sets it on a CPU
            raise MTPCError(NO_OVERLAP)
        CopyTable.of(folder)
        groups = groups | integration_points.NATIVE_COPYING_GROUPS
    if values.copy_tokens is not None:
        _check_longer(settings, values.copy_tokens, name)
        groups = groups | integration_points.LONGER_GROUPS
    for problem in integration_points.problems(groups):
        raise MTPCError(problem)


def _check_longer(settings: Any, longest: int, name: str) -> None:
    """Check the settings for longer drafts where prompt lookup continues them, or raise `MTPCError`."""
    algorithm, steps = _algorithm(settings), settings.speculative_num_steps or 0
    if algorithm not in ADAPTIVE:
        raise MTPCError(f"{name}, but only {_listed(ADAPTIVE)} support 'copy_tokens', not {algorithm}.")
    if not mixes_prompt_lookup(settings):
        raise MTPCError(f"{name}, but 'copy_tokens' requires copy=true.")
    if longest <= steps:
        raise MTPCError(f"{name}, but 'copy_tokens' must be above --speculative-num-steps, which is {steps}.")


def mixes_prompt_lookup(settings: Any) -> bool:
    """Return whether prompt lookup is mixed into the drafts of one of SGLang's own drafters."""
    text = settings.speculative_token_map
    return _algorithm(settings) in ALGORITHMS and is_plugin_token_map(text) and token_map.copies(text)


def _algorithm(settings: Any) -> str:
    return (settings.speculative_algorithm or "").upper()


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _check_fixed(settings: Any, fixed: Mapping[str, Any], feature: str) -> None:
    for key, expected in fixed.items():
        if (value := getattr(settings, key, expected)) != expected:
            raise MTPCError(f"{flag(key)} is {value!r}, but with {feature} it must be {expected!r}.")


def handle_speculative_decoding(server_args: Any, previous: Callable[[Any], None]) -> None:
    """Run SGLang's handling of speculative settings; with prompt lookup its own drafters state their distributions.

    SGLang's check allows ``--speculative-use-rejection-sampling`` with EAGLE only, but its worker for STANDALONE runs
    the same draft loop and verification.

    Args:
        server_args: SGLang's server arguments.
        previous: SGLang's handling.
    """
    settings = resolving_view(server_args)
    if not mixes_prompt_lookup(settings):
        previous(server_args)
    elif _algorithm(settings) == STANDALONE:
        previous(server_args)
        declare_resolution(server_args, PACKAGE, speculative_use_rejection_sampling=True)
    else:
        declare_resolution(server_args, PACKAGE, speculative_use_rejection_sampling=True)
        previous(server_args)


def install() -> None:
    """Wrap SGLang's choice of a worker with `choose_worker`, and its largest draft with `most_draft_tokens`."""
    put_around(HOOKED, choose_worker)
    put_around(HOOKED_SIZE, most_draft_tokens)


def choose_worker(original: Callable[..., type], self: Any, server_args: Any, *args: Any, **options: Any) -> type:
    """Return SGLang's worker class, or the one that extends it if the token map is for this project.

    Raises:
        MTPCError: SGLang serves the draft model with another worker than that of its algorithm.
    """
    worker: type = original(self, server_args, *args, **options)
    text = resolving_view(server_args).speculative_token_map
    if not is_plugin_token_map(text):
        return worker
    from sglang_mtpc.native import WORKERS

    if worker not in WORKERS:
        raise MTPCError(
            f"--speculative-token-map is {text!r}, but SGLang serves this draft model with its {worker.__name__}, "
            "which does not support it; leave it out."
        )
    return WORKERS[worker]


def most_draft_tokens(
    original: Callable[..., int | None], self: Any, server_args: Any, *args: Any, **options: Any
) -> int | None:
    """Return the most tokens that a step may verify for a request, copied ones included; SGLang sizes memory by it."""
    most, text = original(self, server_args, *args, **options), resolving_view(server_args).speculative_token_map
    if most is None or not is_plugin_token_map(text):
        return most
    return max(most, 1 + (token_map.read(text).copy_tokens or 0))
