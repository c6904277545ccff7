"""The target in transformers, with the filters as SGLang's sampler defines them, and as a function of its text."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from tests.engine.exact import Reference


class JointSampling(NamedTuple):
    """The sampling parameters of a request, by SGLang's names and with its defaults."""

    temperature: float = 1.0
    top_k: int = -1
    top_p: float = 1.0
    min_p: float = 0.0


class JointReference(Reference):
    """`Reference` for SGLang, whose filters all look at the unfiltered distribution."""

    @torch.inference_mode()
    def next_probs(self, texts: list[list[int]], sampling: JointSampling) -> Tensor:  # type: ignore[override]
        """Distributions [B, V] of the token after each of B equally long texts."""
        batches = torch.tensor(texts).split(256)
        logits = torch.cat([self.model(input_ids=batch, use_cache=False).logits[:, -1] for batch in batches])
        probs = torch.softmax(logits.double() / sampling.temperature, -1)
        ranked, order = probs.sort(-1, descending=True)
        outside = ranked.cumsum(-1) - ranked > sampling.top_p
        outside |= ranked < sampling.min_p * ranked[:, :1]
        if sampling.top_k > 0:
            outside[:, sampling.top_k :] = True
        probs = probs.masked_fill(torch.zeros_like(outside).scatter(-1, order, outside), 0.0)
        return probs / probs.sum(-1, keepdim=True)
