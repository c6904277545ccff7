"""Steps of vLLM's V1 runner in which nothing is drafted, which cost what they cost without a drafter.

With any drafter vLLM lets its rejection sampler judge every step, also those in which no request has a draft.  That
samples the same tokens as the plain sampler does, and takes longer.  And it prepares what a drafter reads also where
ours reads nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch import Tensor


def install(runner: Any) -> None:
    """Wrap two functions of ``GPUModelRunner`` of the module ``runner``."""
    runner.GPUModelRunner._sample = _plainly(runner.GPUModelRunner._sample)
    runner.GPUModelRunner.propose_draft_token_ids = _at_once(runner.GPUModelRunner.propose_draft_token_ids)


def _copies(runner: Any) -> bool:
    """Only drafters of ours that copy make lists of drafts, which may be empty."""
    return getattr(getattr(runner, "drafter", None), "copying", None) is not None


def _plainly(original: Callable[..., Any]) -> Callable[..., Any]:
    """``original``, told of no drafts where there are none."""

    @functools.wraps(original)
    def _sample(self: Any, logits: Any, spec_decode_metadata: Any) -> Any:
        if _copies(self) and spec_decode_metadata is not None and not any(spec_decode_metadata.num_draft_tokens):
            spec_decode_metadata = None
        return original(self, logits, spec_decode_metadata)

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
