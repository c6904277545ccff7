"""Steps of vLLM's V1 runner in which nothing is drafted, which cost what they cost without a drafter.

With any drafter vLLM lets its rejection sampler judge every step, also those in which no request has a draft.  That
samples the same tokens as the plain sampler does, and takes longer.  And it prepares what a drafter reads also where
ours reads nothing, and works out anew where which of no drafts lie.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor


def install(runner: Any) -> None:
    """Wrap three functions of ``GPUModelRunner`` of the module ``runner``."""
    of = runner.GPUModelRunner
    of._sample = _plainly(of._sample)
    of.propose_draft_token_ids = _at_once(of.propose_draft_token_ids)
    of._calc_spec_decode_metadata = _once(of._calc_spec_decode_metadata)


def _copies(runner: Any) -> bool:
    """Only drafters of ours that copy make lists of drafts, which may be empty."""
    return getattr(getattr(runner, "drafter", None), "copying", None) is not None


def _plainly(original: Callable[..., Any]) -> Callable[..., Any]:
    """``original``, told of no drafts where there are none."""

    @functools.wraps(original)
    def _sample(self: Any, logits: Any, spec_decode_metadata: Any, *others: Any, **named: Any) -> Any:
        if _copies(self) and spec_decode_metadata is not None and not any(spec_decode_metadata.num_draft_tokens):
            spec_decode_metadata = None
        return original(self, logits, spec_decode_metadata, *others, **named)

    return _sample


def _at_once(original: Callable[..., Any]) -> Callable[..., Any]:
    """``original``, but for drafts that the drafter makes at once, of nothing that is prepared for it."""

    @functools.wraps(original)
    def propose_draft_token_ids(
        self: Any,
        scheduler_output: Any,
        sampled_token_ids: Tensor,
        sampling_metadata: Any,
        hidden_states: Tensor,
        *others: Any,
        **named: Any,
    ) -> Any:
        count = scheduler_output.total_num_scheduled_tokens
        said_one = _copies(self) and sampled_token_ids.shape == (count, 1)
        said_one = said_one and not self.discard_request_mask.np[:count].any()
        if said_one:
            most = scheduler_output.num_spec_tokens_to_schedule
            drafts = self.drafter.at_once(self, most, sampled_token_ids, hidden_states[:count])
            if drafts is not None:
                return drafts
        return original(self, scheduler_output, sampled_token_ids, sampling_metadata, hidden_states, *others, **named)

    return propose_draft_token_ids


def _once(original: Callable[..., Any]) -> Callable[..., Any]:
    """``original``, whose answer for so many requests without drafts is kept, but for the rows to sample from."""
    kept: dict[tuple[torch.device, int], Any] = {}

    @functools.wraps(original)
    def _calc_spec_decode_metadata(self: Any, num_draft_tokens: np.ndarray, cu_num_scheduled_tokens: np.ndarray) -> Any:
        if not _copies(self) or num_draft_tokens.any():
            return original(self, num_draft_tokens, cu_num_scheduled_tokens)
        key = self.device, len(num_draft_tokens)
        if key not in kept:
            kept[key] = original(self, num_draft_tokens, cu_num_scheduled_tokens)
        last = torch.from_numpy(cu_num_scheduled_tokens - 1).to(self.device, kept[key].logits_indices.dtype)
        return dataclasses.replace(kept[key], logits_indices=last)

    return _calc_spec_decode_metadata
