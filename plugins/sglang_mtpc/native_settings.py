"""Checks of SGLang's settings for draft vocabularies with SGLang's own drafters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sglang.srt.arg_groups.overrides import resolving_view
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

from mtpc.errors import MTPCError
from mtpc.vocabulary.settings import open_vocabularies
from sglang_mtpc import integration_points, token_map
from sglang_mtpc.hooks import put_around
from sglang_mtpc.shape import flag

ALGORITHMS = ("EAGLE", "NEXTN")
HOOKED = "sglang.srt.speculative.spec_info.SpeculativeAlgorithm.create_worker"
# Settings that change the order of a batch's rows, or use another draft worker, and their required values.
FIXED: Mapping[str, Any] = {
    "enable_dp_attention": False,
    "enable_multi_layer_eagle": False,
    "enable_pdmux": False,
    "pp_size": 1,
    "speculative_adaptive": False,
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
    text, algorithm = settings.speculative_token_map, (settings.speculative_algorithm or "").upper()
    if algorithm not in {*ALGORITHMS, *SpeculativeAlgorithm.__members__} or not is_plugin_token_map(text):
        return
    values, name = token_map.read(text), f"--speculative-token-map is {text!r}"
    if algorithm not in ALGORITHMS:
        raise MTPCError(
            f"{name}, but of SGLang's own drafters only {' and '.join(ALGORITHMS)} support it, not {algorithm}."
        )
    if values.copy_ is not None or values.borrow:
        raise MTPCError(f"{name}, but 'copy' and 'borrow' require a drafter of this project, not {algorithm}.")
    folder = settings.speculative_draft_model_path or settings.model_path
    if open_vocabularies(token_map.vocabulary_values(text), Path(folder), target().vocab_size) is not None:
        for key, expected in FIXED.items():
            if (value := getattr(settings, key, expected)) != expected:
                raise MTPCError(f"{flag(key)} is {value!r}, but with a draft vocabulary it must be {expected!r}.")
    used = integration_points.NATIVE_GROUPS | integration_points.ray_groups(settings)
    for problem in integration_points.problems(used):
        raise MTPCError(problem)


def install() -> None:
    """Wrap SGLang's choice of a worker with `choose_worker`."""
    put_around(HOOKED, choose_worker)


def choose_worker(original: Callable[..., type], self: Any, server_args: Any, *args: Any, **options: Any) -> type:
    """Return SGLang's worker class, or `NativeWorker` if the token map is for this project."""
    worker = original(self, server_args, *args, **options)
    if not is_plugin_token_map(resolving_view(server_args).speculative_token_map):
        return worker
    from sglang_mtpc.native import NativeWorker

    return NativeWorker
