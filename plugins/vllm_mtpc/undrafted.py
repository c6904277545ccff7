"""Steps of vLLM's V1 runner in which nothing is drafted, which cost what they cost without a drafter.

With any drafter vLLM lets its rejection sampler judge every step, also those in which no request has a draft.  That
samples the same tokens as the plain sampler does, and takes longer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def install(runner: Any) -> None:
    """Wrap ``GPUModelRunner._sample`` of the module ``runner``."""
    runner.GPUModelRunner._sample = _plainly(runner.GPUModelRunner._sample)


def _plainly(original: Callable[..., Any]) -> Callable[..., Any]:
    """``original``, told of no drafts where there are none; only where our drafters make lists of them."""

    @functools.wraps(original)
    def _sample(self: Any, logits: Any, spec_decode_metadata: Any) -> Any:
        copies = getattr(getattr(self, "drafter", None), "copying", None) is not None
        if copies and spec_decode_metadata is not None and not any(spec_decode_metadata.num_draft_tokens):
            spec_decode_metadata = None
        return original(self, logits, spec_decode_metadata)

    return _sample
