"""State of one decoding step's draft on the V1 runner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor

from mtpc.draft import Draft, DraftContext, Mode, concat_positions, one_hot
from mtpc.prompt_lookup.mixture import Copying
from mtpc.to_device import copy_to_device
from vllm_mtpc.v1.noise import draft_noise


@dataclass
class V1DraftStep:
    """Draft of B requests in one decoding step.

    Protocol: the proposer creates it by `begin`. `draft_next` adds each token of the autoregressive part, or
    `replace_state` its state where it drafts none. `context` and `parallel_noise` are the input of the parallel part.
    `drafts` joins both.

    Attributes:
        states: The target's state of each request's last accepted token, [B, d]; then the state of each draft step, if
            a parallel part follows.
        tokens: The token that each state predicted, int64 [B]: the target's, then the autoregressive part's.
        autoregressive: Draft tokens of the autoregressive part.
        parallel: Draft tokens of the parallel part.
        mode: Whether draft tokens are sampled, greedy or either.
        temperature: [B]; None where all requests are greedy.
        noise: float64 [B, K], one uniform for each draft token; None for greedy drafts.
        numbers: int64 [B], the draft vocabulary of each request; None for the first one.
        copying: Tokens of prompt lookup, to mix into the distributions; None without prompt lookup.
        seeded: Whether a request has a seed, so that its draft must not depend on the rest of the batch.
        certain: int64 [C], indices of requests with a grammar, whose draft tokens count as certain; their temperature
            is 0 here.  None: there are none, or all drafts are greedy.
        probs: Distribution of each autoregressive draft token, float32 [B, V]; empty for greedy drafts.
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
    certain: Tensor | None = None
    probs: list[Tensor] = field(default_factory=list)

    @classmethod
    def begin(
        cls,
        states: Tensor,
        tokens: Tensor,
        positions: Tensor,
        parts: tuple[int, int],
        sampling_metadata: Any,
        probabilistic: bool,
        grammars: Sequence[int],
        numbers: Tensor | None = None,
        copying: Copying | None = None,
    ) -> Self:
        """Create the state of a step, without synchronizing with the device.

        Args:
            states: The target's state of each request's last accepted token, [B, d].
            tokens: The token that each state predicted, int64 [B].
            positions: Position of each request's last accepted token, int64 [B].
            parts: Draft tokens of the autoregressive part and of the parallel part.
            sampling_metadata: vLLM's ``SamplingMetadata``.
            probabilistic: Whether drafts are sampled where requests are.
            grammars: Indices of requests with a grammar.
            numbers: int64 [B], the draft vocabulary of each request; None for the first one.
            copying: Tokens of prompt lookup; None without prompt lookup.

        Returns:
            The state.
        """
        autoregressive, parallel = parts
        mode: Mode = "sampled" if sampling_metadata.all_random else "mixed"
        noise, certain, generators = None, None, sampling_metadata.generators
        temperature = sampling_metadata.temperature
        if not probabilistic or sampling_metadata.all_greedy or len(grammars) == len(tokens):
            mode = "greedy"
        else:
            noise = draft_noise(positions, autoregressive + parallel, generators)
            if grammars:
                mode, certain = "mixed", copy_to_device(torch.tensor(grammars), temperature.device)
                temperature = temperature.index_fill(0, certain, 0.0)
        seeded = bool(generators)
        return cls(
            [states], [tokens], autoregressive, parallel, mode, temperature, noise, numbers, copying, seeded, certain
        )

    def draft_next(self, model: Any, states: Tensor) -> Tensor:
        """Draft the autoregressive part's next token.

        Args:
            model: `vllm_mtpc.model.DrafterForCausalLM`, or `WholeLogits`.
            states: States of its layers, [B, d]; a later draft step may overwrite them.

        Returns:
            Tokens, int64 [B].
        """
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

    def replace_state(self, states: Tensor) -> Tensor:
        """Condition the parallel part on the state of layers that draft nothing, instead of the target's.

        Args:
            states: States of the layers, [B, d]; a later step may overwrite them.

        Returns:
            Tokens for vLLM's loop, which are not used, int64 [B].
        """
        self.states = [states.clone()]
        return self.tokens[0]

    def _draft_mixed(self, model: Any, states: Tensor, uniforms: Tensor | None, copying: Copying) -> Tensor:
        """Draft from the mixture of the autoregressive part and prompt lookup."""
        if uniforms is None and states.device.type == "cpu" and copying.is_over:
            self.copying = copying.passed()
            return model.greedy(states, self.numbers)
        if uniforms is None:
            token, likely, copied = model.most_probable(states, copying.token, self.numbers)
            tokens = copying.most_probable(token, likely, copied)
        else:
            tokens, mixed, copied = model.drawn_mixed(states, self.temperature, uniforms, copying, self.numbers)
            self.probs.append(mixed)
        self.copying = copying.drafted(tokens, copied)
        return tokens

    def context(self) -> DraftContext:
        """Return what the parallel part is conditioned on.  Call it after the last `draft_next`."""
        return DraftContext(torch.stack(self.states, 1), torch.stack(self.tokens, 1))

    def parallel_noise(self) -> Tensor | None:
        """Return the noise of the parallel part's draft tokens, float64 [B, parallel]; None for greedy drafts."""
        return None if self.noise is None else self.noise[:, self.autoregressive :]

    def drafts(self, parallel: Draft | None) -> Draft:
        """Join the drafts of both parts.

        Args:
            parallel: Draft of the parallel part; None if it drafts nothing.

        Returns:
            The draft: tokens [B, K] and distributions [B, K, V], one-hot for the requests of `certain`.
        """
        parts = [] if parallel is None else [parallel]
        if self.autoregressive:
            probs = torch.stack(self.probs, 1) if self.probs else None
            parts.insert(0, Draft(torch.stack(self.tokens[1:], 1), probs))
        draft = concat_positions(parts) if parts else Draft(self.tokens[0].new_empty(len(self.tokens[0]), 0), None)
        if self.certain is not None and draft.probs is not None:
            draft.probs[self.certain] = one_hot(draft.tokens[self.certain], draft.probs.shape[2])
        return draft
