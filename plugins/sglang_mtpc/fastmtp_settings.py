"""What SGLang's speculative settings must be for a FastMTP drafter; each error is one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from mtpc.drafter import Target
from mtpc.errors import MTPCError
from mtpc.fastmtp.config import read_config
from mtpc.fastmtp.directory import load_layer
from mtpc.vocabulary.settings import open_vocabularies

HEEDED = {"speculative_token_map"}  # beside those that mean something for an MTPC drafter too


def check_directory(settings: Any, target: Target) -> None:
    """Check the drafter directory and the draft vocabulary.

    Errors: `MTPCError` with one sentence.
    """
    folder = Path(settings.speculative_draft_model_path)
    load_layer(folder, target)
    open_vocabularies(vocabulary_values(settings.speculative_token_map), folder, target.vocab_size)


def vocabulary_values(token_map: str | None) -> dict[str, str]:
    """The settings of the draft vocabulary in SGLang's token map: a file, ``FILE?size=8192&language=auto``, or less.

    Errors: `MTPCError` where what follows the question mark is no query.
    """
    file, _, query = (token_map or "").partition("?")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError:
        raise MTPCError(
            f"--speculative-token-map is {token_map!r}, but is to be FILE?size=NUMBER&language=NAME."
        ) from None
    values = dict(pairs)
    if len(values) < len(pairs) or "vocabulary" in values:
        raise MTPCError(
            f"--speculative-token-map is {token_map!r}, but it must name a file first and each setting once."
        )
    return values | ({"vocabulary": file} if file else {})


def draft_steps(settings: Any) -> int:
    """How many tokens to draft: as the settings say, else as many as the drafter was trained for.

    Errors: `MTPCError` for settings that contradict each other or ask for a tree.
    """
    steps, tokens = settings.speculative_num_steps, settings.speculative_num_draft_tokens
    if settings.speculative_eagle_topk not in (None, 1):
        raise MTPCError(
            f"--speculative-eagle-topk is {settings.speculative_eagle_topk}, but a FastMTP drafter drafts chains, "
            "so it must be 1."
        )
    if steps is None:
        trained = read_config(Path(settings.speculative_draft_model_path)).num_drafts
        steps = tokens - 1 if tokens is not None else trained
    if steps < 1:
        raise MTPCError(f"--speculative-num-steps is {steps}, but it must be at least 1.")
    if tokens not in (None, steps + 1):
        raise MTPCError(
            f"--speculative-num-draft-tokens is {tokens}, but a chain of {steps} drafts is verified as "
            f"{steps + 1} tokens."
        )
    return int(steps)
