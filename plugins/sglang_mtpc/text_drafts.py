"""Drafts of a text part, from the tokens that SGLang's scheduler holds."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any
from weakref import ReferenceType, ref

import torch
from sglang.srt.runtime_context import get_parallel, get_schedule

from mtpc.draft import Draft, Mode, one_hot
from mtpc.draft_length.cost import DEFAULT_COSTS, measure_costs
from mtpc.draft_model.drafting import TextDrafting
from mtpc.draft_model.part import LazyDraft, TextDraft, TextPart
from mtpc.noise import counter_uniforms
from sglang_mtpc import served
from sglang_mtpc.adaptive import Lap, Strategy
from sglang_mtpc.draft_lengths import new_predictions, predicted_text
from sglang_mtpc.draft_limits import limit_of
from sglang_mtpc.parallel_worker import ParallelWorker
from sglang_mtpc.ranks import probs_of_first_rank, seconds_of_first_rank, tokens_of_first_rank
from sglang_mtpc.step import BatchStep
from sglang_mtpc.timing import make_dummy_step


class TextWorker(ParallelWorker):
    """`ParallelWorker` with a text part in the place of the parallel part."""

    def init_cuda_graphs(self) -> None:
        """Time decoding steps on a CPU, unless the user has set ``step_cost``; drafting is not the engine's."""
        drafting = self.text
        if not served.adapts() or served.step_cost() is not None:
            return

        def draft(requests: int) -> None:
            if drafting is not None:
                drafting.dummy_draft(requests)

        requests = get_schedule().max_running_requests
        step, most = make_dummy_step(self.target_worker.model_runner), requests * (1 + self.shape.depth)
        cost = measure_costs(step, draft, most, requests, agree=seconds_of_first_rank)
        if drafting is not None:
            drafting.use_cost(cost)
            served.announce_cost(cost)

    def _load(self, model_config: Any) -> Strategy:
        part, self.text = served.load_text_part(self.device), None
        if part is not None:
            part.verifies_lazily = get_parallel().tp_size == 1
            self.text = self._drafting(part)
        served.announce(None, 0, self.text)
        # On a GPU, CUDA graphs and some attention backends verify a fixed number of tokens.
        shortest = 0 if self.device.type == "cpu" else self.shape.depth
        vocab_size = served.config().vocab_size
        return TextChain(self.text, vocab_size, self.device, self.shape.depth, shortest, self.clock.lap)

    def _drafting(self, part: TextPart) -> TextDrafting:
        """Return who drafts how long, by the user's settings."""
        return TextDrafting.of(
            part,
            Path(served.folder()),
            served.config().own_drafts,
            self.shape.depth,
            copies=served.copies(),
            cost=served.step_cost() or DEFAULT_COSTS if served.adapts() else None,
            ragged=False,
        )


class TextChain:
    """Draft a chain with a text part, which runs on the first tensor-parallel rank.

    Decoding steps must not overlap: the text must end with the token that the target has sampled last.
    The state of a request is freed in the next step after it is over.

    Args:
        drafting: The text part's drafting; None on all other ranks.
        vocab_size: Tokens of the target's vocabulary.
        device: Device of the drafts.
        longest: Tokens of a draft at most.
        shortest: Tokens of a draft at least, as SGLang verifies it.
        lap: Called after each part of drafting, see `DraftClock`.
    """

    def __init__(
        self,
        drafting: TextDrafting | None,
        vocab_size: int,
        device: torch.device,
        longest: int,
        shortest: int,
        lap: Lap,
    ) -> None:
        self.drafting, self.vocab_size, self.device = drafting, vocab_size, device
        self.longest, self.shortest, self.lap = longest, shortest, lap
        self.predictions = new_predictions(vocab_size)
        self.seen: dict[ReferenceType[Any], int] = {}  # output tokens that the text part has, by SGLang's ``Req``

    def __call__(self, batch: Any, step: BatchStep) -> Draft | LazyDraft:
        """Return a draft for each request of the batch, all as long as the longest."""
        drafted = None if self.drafting is None else self._draft(self.drafting, batch.reqs, step)
        draft = self._filled(drafted, step.mode)
        self.lap("text")
        return draft

    def _draft(self, drafting: TextDrafting, requests: list[Any], step: BatchStep) -> TextDraft:
        """Bring the text part up to date with SGLang's ``Req`` of the batch, and draft."""
        over = [key for key in self.seen if self._is_over(key)]
        drafting.forget(over)
        for key in over:
            del self.seen[key]
        keys = [ref(request) for request in requests]
        for key, request in zip(keys, requests, strict=True):
            emitted = request.output_ids[self.seen.get(key, 0) :]
            predicted = partial(predicted_text, self.predictions, request)
            drafting.add(key, partial(_tokens_of, request), emitted, predicted, partial(limit_of, request))
            self.seen[key] = len(request.output_ids)
        noise = None
        if step.mode != "greedy":
            noise = counter_uniforms(step.seeds, step.positions, self.longest).cpu()
        return drafting.draft(keys, step.temperature.tolist(), self.longest, noise, [False] * len(keys))

    def _is_over(self, key: ReferenceType[Any]) -> bool:
        """Return whether a request needs no more drafts, or begins again: SGLang may retract it without its output."""
        request = key()
        return request is None or request.finished() or len(request.output_ids) < self.seen[key]

    def _filled(self, drafted: TextDraft | None, mode: Mode) -> Draft | LazyDraft:
        """Return the first rank's drafts, filled up to one length with token 0 and one-hot distributions."""
        drafts = tokens_of_first_rank(None if drafted is None else drafted.tokens)
        length = max(self.shortest, *map(len, drafts))
        filled = [[*draft, *[0] * (length - len(draft))] for draft in drafts]
        tokens = torch.tensor(filled, dtype=torch.int64, device=self.device)
        if mode == "greedy":
            return Draft(tokens, None)
        if drafted is not None and drafted.lazy is not None:
            return LazyDraft(tokens, drafted.lazy)
        probs = one_hot(tokens, self.vocab_size)
        if drafted is not None and drafted.probs is not None:  # None: SGLang counts a sampled request that is over
            for row, draft in enumerate(drafts):
                probs[row, : len(draft)] = drafted.probs[row, : len(draft)]
        # SGLang's kernel rejects a draft token whose probability rounding has put above 1.
        return Draft(tokens, probs_of_first_rank(probs.clamp_max_(1.0)))


def _tokens_of(request: Any) -> list[int]:
    """Return prompt and output tokens of SGLang's ``Req``."""
    return [*request.origin_input_ids, *request.output_ids]
