"""Draft tokens from logits of the target's whole vocabulary, as `DraftLogits` draws them from draft vocabularies."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from mtpc.draw import at_temperature, choose, draw_tokens, most_probable
from mtpc.prompt_lookup.mixture import Copying


class WholeLogits:
    """Draws from the logits of any draft model; methods and arguments are those of `DrafterForCausalLM`.

    Args:
        compute_logits: Computes logits of all tokens, [n, d] -> [n, V]; -inf for tokens that are never drafted.
    """

    def __init__(self, compute_logits: Callable[[Tensor], Tensor]) -> None:
        self.compute_logits = compute_logits

    def greedy(self, hidden_states: Tensor, _: Tensor | None = None) -> Tensor:
        """Return the most probable tokens, int64 [n]."""
        return self.compute_logits(hidden_states).argmax(-1)

    def most_probable(
        self, hidden_states: Tensor, copied: Tensor, _: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the most probable tokens, their probabilities and those of ``copied``, [n] each."""
        return most_probable(self.compute_logits(hidden_states), copied)

    def drawn(
        self, hidden_states: Tensor, temperature: Tensor, uniforms: Tensor, _: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return drawn tokens, int64 [n], and their distributions, float32 [n, V]."""
        return draw_tokens(self.compute_logits(hidden_states), temperature, uniforms)

    def drawn_mixed(
        self, hidden_states: Tensor, temperature: Tensor, uniforms: Tensor, copying: Copying, _: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return tokens drawn from mixtures, the mixtures, and the drafter's probabilities of copied tokens."""
        probs = at_temperature(self.compute_logits(hidden_states), temperature)
        mixed = copying.mixed(probs)
        return choose(mixed, temperature, uniforms), mixed, copying.drafter_probability(probs)
