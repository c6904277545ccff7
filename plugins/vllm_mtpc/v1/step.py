"""What one step of drafting on the V1 runner needs, made once at its start; the autoregressive part adds what it drafts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from mtpc.draft import Draft, DraftContext, Mode, concat_positions
from mtpc.prompt_lookup.mixture import Copying


@dataclass
class Step:
    """One step of a batch of B requests.

    states: the target's state of each request's last accepted token, [B, d], then that of each step of the autoregressive part.
    tokens: the token that each of these states predicted, int64 [B]: the target's own, then the autoregressive part's drafts.
    probs: float32 [B, V], of each autoregressive draft; none where drafts are greedy.  window: drafts of the parallel part.
    temperature: [B].  noise: float64 [B, K], one uniform for each draft; None: greedy.
    numbers: int64 [B], of the requests' draft vocabularies; None: the first for all.  copying: what may be copied
    instead of drafted; None: nothing.  seeded: whether a request has a seed, and so drafts alone as in company.
    peaks: float32 [B], the largest probability of each autoregressive draft, with copying.
    """

    states: list[Tensor]
    tokens: list[Tensor]
    autoregressive: int
    parallel: int
    mode: Mode
    temperature: Tensor | None
    noise: Tensor | None
    numbers: Tensor | None
    copying: Copying | None = None
    seeded: bool = False
    probs: list[Tensor] = field(default_factory=list)
    peaks: list[Tensor] = field(default_factory=list)

    def draft_next(self, model: Any, states: Tensor) -> Tensor:
        """The autoregressive part's next draft, int64 [B], of states [B, d] of its layer, which a later step may overwrite."""
        uniforms = None if self.noise is None else self.noise[:, len(self.tokens) - 1]
        if self.copying is not None:
            tokens = self._draft_mixed(model, states, uniforms, self.copying)
        elif self.mode == "greedy":
            tokens = model.greedy(states, self.numbers)
        else:
            tokens, probs = model.drawn(states, self.temperature, uniforms, self.numbers)
            self.probs.append(probs)
        self.tokens.append(tokens)
        if self.parallel:
            self.states.append(states.clone())
        return tokens

    def _draft_mixed(self, model: Any, states: Tensor, uniforms: Tensor | None, copying: Copying) -> Tensor:
        """The same from the mixture of copying and the autoregressive part."""
        if uniforms is None and states.device.type == "cpu" and copying.is_over:
            tokens, peak, _ = model.most_probable(states, None, self.numbers)
            self.peaks.append(peak)
            self.copying = copying.passed()
            return tokens
        if uniforms is None:
            token, likely, copied = model.most_probable(states, copying.token, self.numbers)
            tokens, peak = copying.most_probable(token, likely, copied)
        else:
            tokens, mixed, copied = model.drawn_mixed(states, self.temperature, uniforms, copying, self.numbers)
            peak = mixed.amax(1)
            self.probs.append(mixed)
        self.peaks.append(peak)
        self.copying = copying.drafted(tokens, copied)
        return tokens

    def known(self) -> DraftContext:
        """What the window is conditioned on, once the autoregressive part has drafted."""
        return DraftContext(torch.stack(self.states, 1), torch.stack(self.tokens, 1))

    def parallel_noise(self) -> Tensor | None:
        """The uniforms of the parallel part, float64 [B, K], one for each of its drafts."""
        return None if self.noise is None else self.noise[:, self.autoregressive :]

    def drafts(self, parallel: Draft | None) -> Draft:
        """Those of both parts, one after the other: [B, K] and [B, K, V]."""
        parts = [] if parallel is None else [parallel]
        if self.autoregressive:
            probs = torch.stack(self.probs, 1) if self.probs else None
            peaks = torch.stack(self.peaks, 1) if self.peaks else None
            parts.insert(0, Draft(torch.stack(self.tokens[1:], 1), probs, peaks))
        return concat_positions(parts) if parts else Draft(self.tokens[0].new_empty(len(self.tokens[0]), 0), None)
