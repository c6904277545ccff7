"""Connects a text part with the requests of vLLM's V1 runner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor

from mtpc.draft_model.drafting import TextDrafting
from mtpc.draft_model.part import TextDraft
from mtpc.prompt_lookup.prediction import Predictions
from vllm_mtpc.ranks import draft_of_first_rank
from vllm_mtpc.request_parameters import has_grammar, limit_of, predicted_text
from vllm_mtpc.v1.noise import draft_noise
from vllm_mtpc.v1.request_outputs import RequestOutputs


class TextDrafts:
    """Adds the text of each request to the text part, and drafts for those whose prompt is prefilled.

    Protocol of a decoding step: `begin_step` with the emitted tokens, then `draft`.  Every tensor-parallel rank makes
    the same calls.

    Attributes:
        drafting: The text part's drafting; None on all ranks but the first.
        outputs: What the part has of each request, also of those that are preempted.
        ids: Ids of the batch's requests.
        rows: Their indices without those that cannot have a draft.
        positions: Position of each request's last accepted token.
        grammars: Whether each request has a grammar.

    Args:
        drafting: The text part's drafting; None on all ranks but the first.
        predictions: Reads texts that requests predict.
    """

    def __init__(self, drafting: TextDrafting | None, predictions: Predictions) -> None:
        self.drafting, self.predictions = drafting, predictions
        self.outputs = RequestOutputs()
        self.ids: list[str] = []
        self.rows: list[int] = []
        self.positions: list[int] = []
        self.grammars: list[bool] = []

    def begin_step(self, ids: Sequence[str], requests: Mapping[str, Any], tokens: Tensor, unread: Tensor) -> None:
        """Begin a step with the tokens that the target has just emitted.

        Args:
            ids: Ids of the batch's requests.
            requests: All unfinished requests of vLLM by id, without these tokens.
            tokens: int [B, W], -1 where there is no token.
            unread: bool [B], whether a part of the prompt is still to be prefilled.
        """
        gone = list(self.outputs.gone(requests))
        if self.drafting is not None:
            self.drafting.forget(gone)
        self.ids, self.rows, self.positions = list(ids), [], []
        self.grammars = [has_grammar(requests[name]) for name in ids]
        for row, (name, emitted, waiting) in enumerate(zip(ids, tokens.tolist(), unread.tolist(), strict=True)):
            request, new = requests[name], [token for token in emitted if token >= 0 and not waiting]
            self.positions.append(request.num_prompt_tokens + len(request.output_token_ids) + len(new) - 2)
            if waiting or request.prompt_token_ids is None:  # a prompt of embeddings has no text
                continue
            self.rows.append(row)
            self._add(name, request, new)

    def draft(self, num_drafts: int, temperatures: Sequence[float], generators: dict[int, Generator]) -> TextDraft:
        """Draft for the requests of `begin_step`.

        Args:
            num_drafts: Maximum number of draft tokens.
            temperatures: Temperature of each request; 0 is greedy. Drafts of a request with a grammar always are.
            generators: Generators of the requests with a seed, by their index in the batch.

        Returns:
            The same draft on every rank; a request whose prompt is still being prefilled has no draft token. Its
            ``lazy`` counts only the requests of `rows`.
        """
        temperatures = [0.0 if one else of for one, of in zip(self.grammars, temperatures, strict=True)]
        noise = draft_noise(torch.tensor(self.positions), num_drafts, generators) if any(temperatures) else None
        if not (num_drafts and self.rows):
            return TextDraft([[] for _ in self.ids], None)
        drafted = None
        if self.drafting is not None:
            keys, chosen = [self.ids[row] for row in self.rows], [temperatures[row] for row in self.rows]
            seeded, noise = [row in generators for row in self.rows], None if noise is None else noise[self.rows]
            drafted = self.drafting.draft(keys, chosen, num_drafts, noise, seeded)
        return self._of_batch(draft_of_first_rank(drafted))

    def _add(self, name: str, request: Any, new: list[int]) -> None:
        """Add what the part does not have of a request's text, which ends with the tokens ``new``."""
        output = [*self.outputs.missed(name, request, len(new)), *new]
        if self.drafting is not None:
            self.drafting.add(
                name,
                lambda: [*request.prompt_token_ids, *request.output_token_ids, *new],
                output,
                partial(predicted_text, self.predictions, request),
                partial(limit_of, request),
            )

    def _of_batch(self, draft: TextDraft) -> TextDraft:
        """Give the requests without a draft their rows."""
        tokens: list[list[int]] = [[] for _ in self.ids]
        for row, drafted in zip(self.rows, draft.tokens, strict=True):
            tokens[row] = drafted
        if draft.probs is None or len(self.rows) == len(self.ids):
            return TextDraft(tokens, draft.probs, draft.lazy)
        probs = draft.probs.new_zeros(len(self.ids), *draft.probs.shape[1:])
        probs[self.rows] = draft.probs
        return TextDraft(tokens, probs)
