"""Mixture of an autoregressive drafter with prompt lookup, token by token, also within SGLang's draft loop."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from mtpc.draw import at_temperature
from mtpc.prompt_lookup.mixture import Copying
from sglang_mtpc.finite import finite


class Mixing:
    """State of the mixture with prompt lookup while the drafts of one step grow.

    For each token: `mixed` or `logits`, then `drafted`.  `in_loop` does so in SGLang's loop.

    Args:
        copying: State after the draft tokens so far.
        temperatures: float32 [B, 1], by which SGLang's loop divides logits.

    Attributes:
        copying: State after the last token that `drafted` was called for.
        by_drafter: Argument for `Copying.drafted`, [B].
        awaits_token: Whether a distribution was mixed whose token `drafted` has not received.
    """

    by_drafter: Tensor

    def __init__(self, copying: Copying, temperatures: Tensor) -> None:
        self.copying, self.temperatures = copying, temperatures
        self.awaits_token = False

    def mixed(self, drafter_probs: Tensor) -> Tensor:
        """Return the mixture for the next draft token, float32 [B, V], from the drafter's distribution, [B, V]."""
        self.by_drafter, self.awaits_token = self.copying.drafter_probability(drafter_probs), True
        # SGLang's kernel rejects a draft token whose probability rounding has put above 1.
        return self.copying.mixed(drafter_probs).clamp_max(1.0)

    def drafted(self, tokens: Tensor) -> None:
        """Advance by the sampled draft tokens, int64 [B]; a second call for the same token does nothing."""
        if self.awaits_token:
            self.copying, self.awaits_token = self.copying.drafted(tokens, self.by_drafter), False

    def logits(self, drafter_logits: Tensor) -> Tensor:
        """Return logits of the mixture, float32 [B, V], from which SGLang's loop samples the next draft token.

        Args:
            drafter_logits: The drafter's logits, [B, V].

        Returns:
            Logits that give the mixture when SGLang divides them by the temperatures.
        """
        return finite(self.mixed(at_temperature(drafter_logits, self.temperatures[:, 0])).log()) * self.temperatures

    @contextmanager
    def in_loop(self, runner: Any) -> Iterator[None]:
        """Mix the logits of every pass of SGLang's draft loop, which must run within this context.

        Args:
            runner: SGLang's ``ModelRunner`` of the draft layers or the draft model.

        Yields:
            None; afterwards the runner's logits are its own again.
        """
        plain = runner.forward

        @functools.wraps(plain)
        def forward(forward_batch: Any, *args: Any, **options: Any) -> Any:
            self.drafted(forward_batch.input_ids)
            output = plain(forward_batch, *args, **options)
            found = output.logits_output
            found.next_token_logits = self.logits(found.next_token_logits)
            return output

        runner.forward = forward
        try:
            yield
        finally:
            runner.forward = plain
