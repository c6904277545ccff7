"""What SGLang's speculative settings must be for a drafter of ours; each error is one sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from mtpc.drafter import Target, load_drafter, read_config
from mtpc.drafter.config import describes_a_drafter
from mtpc.drafter.tree import level_widths
from mtpc.errors import MTPCError
from mtpc.fastmtp.config import describes_a_drafter as describes_fastmtp
from sglang_mtpc import FASTMTP, NAME, fastmtp_settings, touch_points

DESCRIBES = {NAME: describes_a_drafter, FASTMTP: describes_fastmtp}  # by the algorithm that serves such a directory
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
# Other settings that drafting cannot honour, or that would not be lossless with it, and what each must be.
FIXED = {
    "disaggregation_mode": "null",
    "enable_custom_logit_processor": False,
    "enable_dp_attention": False,
    "enable_multi_layer_eagle": False,
    "enable_pdmux": False,
    "enable_return_hidden_states": False,
    "enable_watermark": False,
    "pp_size": 1,
}
TREE_ATTENTION = ("flashinfer", "fa3", "triton")  # on a GPU: they verify trees with pages of any size
RUNNING_REQUESTS = 48  # at most, unless the user says otherwise: SGLang's own default for speculative decoding


class Shape(NamedTuple):
    """What is drafted for each request: a chain where children is 1, else a tree.

    steps: longest path.  children: most children of a node.  nodes: drafted tokens.
    """

    steps: int
    children: int
    nodes: int


def check_settings(settings: Any, given: Any, target: Callable[[], Any]) -> None:
    """Check the settings and the drafter directory they name; what is not meant for our drafters passes.

    settings: SGLang's server arguments as resolved so far.  given: the same as the user gave them.  target: SGLang's
    ``ModelConfig`` of the target, made when it is needed.
    Errors: `MTPCError` with one sentence.
    """
    folder, algorithm = settings.speculative_draft_model_path, (settings.speculative_algorithm or "").upper()
    for name, describes in DESCRIBES.items():
        if folder is not None and name != algorithm and describes(folder):
            raise MTPCError(
                f"{folder} is {_an(name)} drafter: --speculative-algorithm must be {name}, "
                f"not {settings.speculative_algorithm}."
            )
    if algorithm not in DESCRIBES:
        return
    for problem in touch_points.problems():
        raise MTPCError(problem)
    if folder is None:
        raise MTPCError(
            f"--speculative-algorithm {algorithm} needs --speculative-draft-model-path, a drafter's directory."
        )
    shape = draft_shape(settings)
    config = target()
    served, heeded = Target(config.hidden_size, config.vocab_size), HEEDED
    if algorithm == FASTMTP:
        fastmtp_settings.check_directory(settings, served)
        heeded = HEEDED | fastmtp_settings.HEEDED
    else:
        load_drafter(folder, served)
    _check_fixed(given, _defaults(given, heeded), algorithm)
    _check_fixed(settings, FIXED, algorithm)
    if shape.children > 1:
        _check_tree(settings)


def _an(algorithm: str) -> str:
    return "an MTPC" if algorithm == NAME else "a FastMTP"


def _defaults(given: Any, heeded: set[str]) -> dict[str, Any]:
    """SGLang's defaults of the speculative settings that mean nothing for a drafter."""
    plain = type(given)(model_path=given.model_path)
    names = {name for name in dir(plain) if name.startswith("speculative_")} - heeded
    return {name: getattr(plain, name) for name in sorted(names)}


def _check_fixed(settings: Any, fixed: Mapping[str, Any], algorithm: str) -> None:
    for key, expected in fixed.items():
        value = getattr(settings, key, expected)
        if value != expected:
            raise MTPCError(f"{_flag(key)} is {value!r}, but with {_an(algorithm)} drafter it must be {expected!r}.")


def _check_tree(settings: Any) -> None:
    if settings.speculative_use_rejection_sampling:
        raise MTPCError(
            "--speculative-use-rejection-sampling is for chains; with a tree of drafts it must be left out."
        )
    for phase in ("prefill", "decode") if settings.device != "cpu" else ():
        backend = getattr(settings, f"{phase}_attention_backend") or settings.attention_backend
        if backend not in TREE_ATTENTION:
            raise MTPCError(
                f"the attention backend {backend} does not verify trees: for these "
                f"{_flag('attention_backend')} must be one of {', '.join(TREE_ATTENTION)}."
            )


def draft_shape(settings: Any) -> Shape:
    """What to draft, from the settings and, where they leave it open, the drafter's configuration.

    Errors: `MTPCError` for settings that contradict each other or ask for more than an MTPC drafter's window holds.
    """
    if settings.speculative_algorithm.upper() == FASTMTP:
        steps = fastmtp_settings.draft_steps(settings)
        return Shape(steps, 1, steps)
    folder = Path(settings.speculative_draft_model_path)
    config = read_config(folder)
    window = config.window
    steps, tokens = settings.speculative_num_steps, settings.speculative_num_draft_tokens
    children = 1 if settings.speculative_eagle_topk is None else settings.speculative_eagle_topk
    if children < 1:
        raise MTPCError(f"{_flag('speculative_eagle_topk')} is {children}, but it must be at least 1.")
    if steps is None:
        steps = tokens - 1 if tokens is not None and children == 1 else window - 1
    if not 1 <= steps < window:
        raise MTPCError(
            f"{_flag('speculative_num_steps')} is {steps}, but {folder} has a window of {window} tokens, "
            f"so it must be a whole number from 1 to {window - 1}."
        )
    if children == 1:
        if tokens not in (None, steps + 1):
            raise MTPCError(
                f"{_flag('speculative_num_draft_tokens')} is {tokens}, but a chain of {steps} drafts is verified as "
                f"{steps + 1} tokens; for a tree, set {_flag('speculative_eagle_topk')} to 2 or more."
            )
        return Shape(steps, 1, steps)
    if tokens is None or tokens < 2:
        raise MTPCError(
            f"{_flag('speculative_num_draft_tokens')} is {tokens}, but {_flag('speculative_eagle_topk')} {children} is "
            "for trees, so it must be the number of the tree's nodes with the root counted, at least 2."
        )
    level_widths(tokens - 1, steps, config.vocab_size, children)
    return Shape(steps, children, tokens - 1)


def complete_settings(settings: Any) -> None:
    """Write what follows from the drafts' shape, and what SGLang needs to be told about its own defaults."""
    shape = draft_shape(settings)
    settings.speculative_num_steps = shape.steps
    settings.speculative_eagle_topk = shape.children
    settings.speculative_num_draft_tokens = shape.nodes + 1
    settings.speculative_use_rejection_sampling = shape.children == 1  # chains come with their distributions
    settings.enable_mixed_chunk = False  # a decoding request's token would be computed without its drafts
    if settings.max_running_requests is None:
        settings.max_running_requests = RUNNING_REQUESTS


def _flag(key: str) -> str:
    return "--" + key.replace("_", "-")
