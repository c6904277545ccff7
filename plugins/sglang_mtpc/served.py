"""The drafter that this process serves: its configuration and settings, read from SGLang's runtime context."""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path
from typing import Any

import torch
from sglang.srt.runtime_context import get_device, get_parallel, get_schedule, get_serving, get_spec

from mtpc.draft_length.cost import StepCost
from mtpc.draft_model.drafting import TextDrafting
from mtpc.draft_model.part import TextPart
from mtpc.errors import MTPCError
from mtpc.files.target import Target
from mtpc.memory import FLOAT_BYTES, check_batch_memory
from mtpc.methods import DrafterConfig, DraftMethod, method_of
from mtpc.methods.drafter import draft_vocabularies, load_drafter
from mtpc.parallel.part import ParallelPart
from mtpc.serving.announcement import Shares, startup_line
from mtpc.target_head.draft_logits import DraftLogits
from mtpc.vocabulary.vocabularies import DraftVocabularies
from sglang_mtpc import token_map
from sglang_mtpc.shape import DraftShape

logger = logging.getLogger(f"sglang.{__name__}")


@cache
def read(folder: str) -> tuple[DraftMethod, DrafterConfig]:
    """Read the configuration of a drafter checkpoint; it must not change while it is served.

    Args:
        folder: Directory of the checkpoint.

    Returns:
        The draft method and the configuration.

    Raises:
        MTPCError: See `mtpc.methods.method_of` and `DraftMethod.read_config`.
    """
    method = method_of(folder)
    return method, method.read_config(Path(folder))


def folder() -> str:
    """Return the directory of the served drafter checkpoint."""
    return str(get_spec().speculative_draft_model_path)


def config() -> DrafterConfig:
    """Return the configuration of the served drafter."""
    return read(folder())[1]


def has_autoregressive_part() -> bool:
    """Return whether the drafter has draft layers, which SGLang's own draft worker runs."""
    return config().autoregressive is not None


def reads_text() -> bool:
    """Return whether the drafter has a text part, and no other part."""
    return read(folder())[0].reads_text


def shape() -> DraftShape:
    """Return the shape of the drafts; the settings must be complete."""
    spec = get_spec()
    nodes, count = spec.speculative_num_draft_tokens - 1, token_map.read(spec.speculative_token_map).borrow
    return DraftShape(spec.speculative_num_steps, spec.speculative_eagle_topk, nodes, count)


def copies() -> bool:
    """Return whether prompt lookup is enabled."""
    return token_map.copies(get_spec().speculative_token_map, not config().own_drafts)


def adapts() -> bool:
    """Return whether draft length is adaptive.

    It is on CPUs only: on a GPU, CUDA graphs and some attention backends verify a fixed number of tokens.  Steps may
    not overlap, as the tokens of the last one must be known.  With ``--speculative-adaptive`` SGLang chooses instead.
    """
    settings, by_sglang = token_map.read(get_spec().speculative_token_map), get_spec().speculative_adaptive
    is_possible = get_device().device == "cpu" and get_schedule().disable_overlap_schedule
    return settings.adaptive and is_possible and not by_sglang


def step_cost() -> StepCost | None:
    """Return the ``step_cost`` that the user has set; None: it is measured at start-up."""
    return token_map.read(get_spec().speculative_token_map).step_cost


def drafter_shape() -> DraftShape:
    """Return the shape of what the drafter drafts, without the tokens that only prompt lookup drafts."""
    return shape().of_drafter(config()) if copies() else shape()


def capture_state_below(target: Any) -> None:
    """Let the target's model return the state between layers that the drafter reads, if it reads one.

    Args:
        target: SGLang's model of the target.

    Raises:
        MTPCError: SGLang's model does not return states between its layers.
    """
    autoregressive = config().autoregressive
    if autoregressive is None or autoregressive.state_below is None:
        return
    if not hasattr(target, "set_eagle3_layers_to_capture"):
        raise MTPCError(
            f"{folder()} reads a state between the target's layers, which SGLang's {type(target).__name__} does not "
            "offer."
        )
    target.set_eagle3_layers_to_capture([autoregressive.state_below - 1])  # index of the layer whose output it is


def vocabularies(tokenizer: str, device: torch.device) -> DraftVocabularies | None:
    """Open the draft vocabularies of the served drafter.

    Args:
        tokenizer: The target's, see `draft_vocabularies`.
        device: Where it drafts.

    Returns:
        The draft vocabularies; None: it drafts from all tokens. In CUDA graphs it does where the union vocabulary is
        that of the target, see `UnionLogits`.

    Raises:
        MTPCError: See `draft_vocabularies`.
    """
    values = token_map.vocabulary_values(get_spec().speculative_token_map)
    opened = draft_vocabularies(values, Path(folder()), *read(folder()), tokenizer)
    static = device.type != "cpu"
    return None if static and opened is not None and opened.union() is None else opened


def announce(logits: DraftLogits | None, steps: int, text: TextDrafting | None = None) -> None:
    """Log on the first rank which drafter is served, and how it drafts.

    Args:
        logits: Logits of the draft vocabularies; None: the whole vocabulary.
        steps: Draft steps of the autoregressive part.
        text: The text part's drafting; None: the drafter has none.
    """
    if get_parallel().tp_rank:
        return
    drafts, by_drafter, (method, drafter) = shape(), drafter_shape(), read(folder())
    rest = by_drafter.depth - steps
    parallel, of_text = (rest, 0) if text is None else (0, rest)
    shares = Shares(steps, parallel, drafts.depth - by_drafter.depth, of_text)
    tree = [f"trees of {drafts.nodes} nodes"] * (drafts.children > 1)
    if text is None:
        from_what = f"drafting from all {drafter.vocab_size} tokens" if logits is None else logits.summary
        kind = "adaptive" if adapts() else "SGLang's adaptive" if get_spec().speculative_adaptive else "fixed"
        more = [*tree, *["prompt lookup"] * copies(), f"{kind} draft length"]
    else:
        from_what = "drafting from the request's text"
        more = [*text.facts, f"the text part takes {text.part.memory() / 1e6:,.1f} MB"]
    batch = get_schedule().max_running_requests
    if batch and by_drafter.depth:
        probs = None if by_drafter.children > 1 else FLOAT_BYTES * batch * by_drafter.depth * drafter.vocab_size
        more.append(check_batch_memory(batch, by_drafter.nodes, drafter.vocab_size, probs, steps > 0))
    logger.info(startup_line(Path(folder()), method, shares, from_what, *more))


def announce_cost(cost: StepCost) -> None:
    """Log the measured step cost on the first rank."""
    if not get_parallel().tp_rank:
        logger.info("%s: %s.", folder(), cost.summary)


def load_parallel_part(model_config: Any, device: torch.device) -> ParallelPart:
    """Load the parallel part of the served drafter, which must have one.

    Args:
        model_config: SGLang's ``ModelConfig`` of the target, whose dtype it gets.
        device: Device of the weights.

    Returns:
        The parallel part.

    Raises:
        MTPCError: See `mtpc.methods.drafter.load_drafter`.
    """
    target = Target(model_config.hidden_size, model_config.vocab_size)
    part = load_drafter(folder(), target, dtype=model_config.dtype).parallel
    assert part is not None
    return part.to(device)


def load_text_part(device: torch.device) -> TextPart | None:
    """Load the text part of the served drafter, which must have one.

    Args:
        device: Device of the engine.

    Returns:
        The text part; None on all tensor-parallel ranks but the first.

    Raises:
        MTPCError: See `DraftMethod.text`.
    """
    if get_parallel().tp_rank:
        return None
    method, drafter = read(folder())
    part = method.text(Path(folder()), drafter, str(get_serving().tokenizer_path), device)
    assert part is not None
    return part
