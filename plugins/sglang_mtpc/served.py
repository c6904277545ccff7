"""The drafter that this process serves: its configuration, wherever SGLang asks what follows from it."""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path
from typing import Any

import torch
from sglang.srt.model_executor.cuda_graph_config import Backend, Phase, check_cuda_graph_backend
from sglang.srt.runtime_context import get_device, get_parallel, get_schedule, get_spec

from mtpc.draft_length.cost import StepCost
from mtpc.errors import MTPCError
from mtpc.files.target import Target
from mtpc.memory import FLOAT_BYTES, check_batch_memory
from mtpc.methods import DrafterConfig, DraftMethod, method_of
from mtpc.methods.drafter import load_drafter
from mtpc.parallel.part import ParallelPart
from mtpc.serving.announcement import Shares, announced
from sglang_mtpc import token_map
from sglang_mtpc.shape import Shape

logger = logging.getLogger(f"sglang.{__name__}")


@cache
def read(folder: str) -> tuple[DraftMethod, DrafterConfig]:
    """The draft method and the strictly read configuration of a drafter checkpoint, which does not change while it is served.

    Errors: `MTPCError`, see `mtpc.methods.method_of` and `DraftMethod.read_config`.
    """
    method = method_of(folder)
    return method, method.read_config(Path(folder))


def folder() -> str:
    """The drafter's directory, from the settings that every process of SGLang has."""
    return str(get_spec().speculative_draft_model_path)


def config() -> DrafterConfig:
    """The drafter's configuration."""
    return read(folder())[1]


def has_autoregressive_part() -> bool:
    """Whether the drafter has a layer that SGLang's own draft worker runs."""
    return config().autoregressive is not None


def shape() -> Shape:
    """Of the drafts, once the settings are complete."""
    spec = get_spec()
    nodes, count = spec.speculative_num_draft_tokens - 1, token_map.read(spec.speculative_token_map).borrow
    return Shape(spec.speculative_num_steps, spec.speculative_eagle_topk, nodes, count)


def copies() -> bool:
    """Whether drafts are copied from the request's own text."""
    return token_map.copies(get_spec().speculative_token_map, not config().own_drafts)


def adapts() -> bool:
    """Whether the drafts of each step are as long as is worth it; in CUDA graphs they all have one length.

    What was emitted in the last step must be known, so steps may not overlap.
    """
    said = token_map.read(get_spec().speculative_token_map)
    return said.adaptive and not _in_graphs() and get_schedule().disable_overlap_schedule


def step_cost() -> StepCost | None:
    """What the user says that steps cost; None: it is timed."""
    return token_map.read(get_spec().speculative_token_map).step_cost


def _in_graphs() -> bool:
    """Whether SGLang verifies in CUDA graphs, each of which is for one number of tokens."""
    return get_device().device != "cpu" and not check_cuda_graph_backend(Phase.DECODE, Backend.DISABLED)


def own_shape() -> Shape:
    """Of what the drafter itself drafts."""
    return shape().own(config()) if copies() else shape()


def hand_over(target: Any) -> None:
    """Let SGLang's model of the target hand over the state that the drafter reads, if it is not the last.

    Errors: `MTPCError` for a target of which SGLang hands over no states between its layers.
    """
    autoregressive = config().autoregressive
    if autoregressive is None or autoregressive.state_below is None:
        return
    if not hasattr(target, "set_eagle3_layers_to_capture"):
        raise MTPCError(
            f"{folder()} reads a state between the target's layers, which SGLang's {type(target).__name__} does not "
            "offer."
        )
    target.set_eagle3_layers_to_capture([autoregressive.state_below - 1])  # by the layer whose output it is


def announce(vocabularies: str | None, steps: int) -> None:
    """Say in the log of the first rank what drafts.

    vocabularies: what is drafted from; None: all tokens.  steps: of the autoregressive part.
    """
    if get_parallel().tp_rank:
        return
    drafts, own, (method, drafter) = shape(), own_shape(), read(folder())
    shares = Shares(steps, own.depth - steps, drafts.depth - own.depth)
    tree = [f"trees of {drafts.nodes} nodes"] * (drafts.children > 1)
    more = [*tree, *["copying from the request's own text"] * copies()]
    more.append("as many as are worth it" if adapts() else "always as many")
    batch = get_schedule().max_running_requests
    if batch and own.depth:
        kept = None if own.children > 1 else FLOAT_BYTES * batch * own.depth * drafter.vocab_size
        more.append(check_batch_memory(batch, own.nodes, drafter.vocab_size, kept, steps > 0))
    whole = f"drafting from all {drafter.vocab_size} tokens"
    logger.info(announced(Path(folder()), method, shares, vocabularies or whole, *more))


def announce_cost(cost: StepCost) -> None:
    """Say in the log of the first rank what steps cost."""
    if not get_parallel().tp_rank:
        logger.info("%s: %s.", folder(), cost.summary)


def parallel(model_config: Any, device: torch.device) -> ParallelPart:
    """The parallel part of a drafter that has one, of the target's dtype.

    model_config: SGLang's ``ModelConfig`` of the target.

    Errors: `MTPCError`, see `mtpc.methods.drafter.load_drafter`.
    """
    target = Target(model_config.hidden_size, model_config.vocab_size)
    part = load_drafter(folder(), target, dtype=model_config.dtype).parallel
    assert part is not None
    return part.to(device)
