"""What SGLang's settings must be where a draft layer that it runs itself is to draft from draft vocabularies."""

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
CREATE = "sglang.srt.speculative.spec_info.SpeculativeAlgorithm.create_worker"
# Settings under which rows of a batch are not those of its requests, or the drafts are another worker's.
FIXED: Mapping[str, Any] = {
    "enable_dp_attention": False,
    "enable_multi_layer_eagle": False,
    "enable_pdmux": False,
    "pp_size": 1,
    "speculative_adaptive": False,
    "use_ray": False,  # SGLang loads no plugins in Ray's actors
}


def means_ours(text: str | None) -> bool:
    """Whether a token map is for this project: what SGLang reads itself is one file of torch's."""
    file, query, _ = (text or "").partition("?")
    return bool(query) or file.endswith((".json", ".safetensors"))


def check_native(settings: Any, target: Callable[[], Any]) -> None:
    """Check a token map of ours with an algorithm that is SGLang's; everything else passes.

    settings: SGLang's server arguments as resolved so far.  target: its ``ModelConfig`` of the target.

    Errors: `MTPCError` with one sentence.
    """
    text, algorithm = settings.speculative_token_map, (settings.speculative_algorithm or "").upper()
    if algorithm not in {*ALGORITHMS, *SpeculativeAlgorithm.__members__} or not means_ours(text):
        return
    said, name = token_map.read(text), f"--speculative-token-map is {text!r}"
    if algorithm not in ALGORITHMS:
        raise MTPCError(f"{name}, which of SGLang's own drafters {' and '.join(ALGORITHMS)} take, not {algorithm}.")
    if said.copy_ is not None or said.borrow:
        raise MTPCError(f"{name}, but only drafters of this project copy and borrow, not {algorithm}.")
    folder = settings.speculative_draft_model_path or settings.model_path
    if open_vocabularies(token_map.vocabulary_values(text), Path(folder), target().vocab_size) is not None:
        for key, expected in FIXED.items():
            if (value := getattr(settings, key, expected)) != expected:
                raise MTPCError(f"{flag(key)} is {value!r}, but with a draft vocabulary it must be {expected!r}.")
    for problem in integration_points.problems(integration_points.NATIVE_GROUPS):
        raise MTPCError(problem)


def install() -> None:
    """Put `choose` around SGLang's choice of a worker."""
    put_around(CREATE, choose)


def choose(original: Callable[..., type], self: Any, server_args: Any, *args: Any, **options: Any) -> type:
    """SGLang's worker; for a token map of ours the one that goes on from it."""
    worker = original(self, server_args, *args, **options)
    if not means_ours(resolving_view(server_args).speculative_token_map):
        return worker
    from sglang_mtpc.native import NativeWorker

    return NativeWorker
