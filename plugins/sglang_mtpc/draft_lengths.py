"""Adaptive draft length and prompt lookup for a batch, from the tokens that SGLang's scheduler holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self
from weakref import WeakKeyDictionary

import torch
from sglang.srt.runtime_context import get_serving
from torch import Tensor

from mtpc.draft import MAX_DRAFTS, Draft, Mode, concat_positions, one_hot
from mtpc.draft_length.budget import DraftBudget
from mtpc.draft_length.controller import DrafterTokens, DraftLengths
from mtpc.draft_length.cost import DEFAULT_COSTS, FREE_DRAFTS, StepCost, measure_costs
from mtpc.draft_length.request import DraftedRequest
from mtpc.draft_model.pair import load_tokenizer
from mtpc.methods.drafter import draft_budget
from mtpc.prompt_lookup.mixture import Copied
from mtpc.prompt_lookup.prediction import Predictions
from mtpc.prompt_lookup.table import CopyTable
from sglang_mtpc import served
from sglang_mtpc.draft_limits import limit_of
from sglang_mtpc.ranks import seconds_of_first_rank
from sglang_mtpc.shape import DraftShape


class ChosenLength(NamedTuple):
    """The common length of all drafts of a step.

    Attributes:
        drafter_tokens: Tokens that the drafter drafts; the others are copied.
        length: Draft tokens in all; 0: no drafts in this step.
    """

    drafter_tokens: int
    length: int


class WorkerLengths:
    """Chooses the common draft length of each step, and looks up tokens to copy in the requests' own tokens.

    One step: `begin`, then `copied` and `choose`, then `extend_with_copied` for a chain, or
    `DraftLengths.drafted_trees` of its `controller` for trees.  Decoding steps must not overlap: the tokens emitted in
    a step must be known before the next one is drafted.  The state of a request is freed with SGLang's ``Req``.

    Args:
        table: Acceptance statistics of prompt lookup, see `DraftLengths`.
        device: Device of the drafts.
        budget: Tokens that the drafter drafts.
        shape: Shape of the longest draft.
        cost: Cost of decoding steps, by which lengths are chosen; None: always the longest draft.
        copies: Whether prompt lookup drafts as well.
        vocab_size: V of the target.
    """

    def __init__(
        self,
        table: CopyTable,
        device: torch.device,
        budget: DraftBudget,
        shape: DraftShape,
        cost: StepCost | None,
        copies: bool,
        vocab_size: int,
    ) -> None:
        self.device, self.shape, self.adapts = device, shape, cost is not None
        self.predictions = new_predictions(vocab_size)
        self.times_steps = False  # whether `time_steps` measures the cost
        longest = shape.nodes
        self.ways: list[DrafterTokens] = [[drafter_token_count(budget, length) for length in range(longest + 1)]]
        if copies and budget.tokens:
            self.ways.append([0] * (longest + 1))
        requests: WeakKeyDictionary[Any, DraftedRequest] = WeakKeyDictionary()
        cost = cost or FREE_DRAFTS
        self.controller = DraftLengths(budget, longest, cost, table, vocab_size, requests=requests, copies=copies)

    @classmethod
    def of_served(cls, device: torch.device) -> Self | None:
        """Return the draft lengths of the served drafter; None: drafts have one fixed length and copy nothing."""
        copies, adapts = served.copies(), served.adapts()
        if not copies and not adapts:
            return None
        shape, table = served.shape(), CopyTable.of(Path(served.folder()))
        budget = draft_budget(served.config(), shape.depth, copies)
        given = served.step_cost()
        cost = (given or DEFAULT_COSTS) if adapts else None
        made = cls(table, device, budget, shape, cost, copies, served.config().vocab_size)
        made.times_steps = adapts and given is None
        return made

    def time_steps(self, step: Callable[[int], object], draft: Callable[[int], object] | None, requests: int) -> None:
        """Measure the cost of decoding steps, unless the user has set ``step_cost``.

        Args:
            step: Runs the target for the given number of tokens.
            draft: Runs the drafter for the given number of requests; None: its time is left out.
            requests: Largest number of requests in a batch.
        """
        if self.times_steps:
            drafts = draft if self.controller.budget.tokens else None
            most = requests * (1 + self.shape.nodes)
            self.controller.cost = measure_costs(step, drafts, most, requests, agree=seconds_of_first_rank)
            served.announce_cost(self.controller.cost)

    def begin(self, requests: Sequence[Any], greedy: bool = True) -> None:
        """Begin a step.

        Args:
            requests: SGLang's ``Req`` of each row of the batch.
            greedy: Whether every request has a temperature of 0.
        """
        self.controller.begin(greedy)
        for request in requests:
            known = self.controller.requests.get(request)
            if known is not None and len(request.output_ids) < known.emitted:  # retracted without its output
                del self.controller.requests[request]
                known = None
            emitted = request.output_ids[0 if known is None else known.emitted :]
            prompt: Callable[[], Sequence[int]] = partial(list, request.origin_input_ids)
            predicted = partial(predicted_text, self.predictions, request)
            limit = partial(limit_of, request) if self.shape.children == 1 else lambda: MAX_DRAFTS  # see `keep_limits`
            self.controller.add(request, prompt, emitted, waiting=False, predicted=predicted, limit=limit)

    def copied(self, drafts: int) -> Copied:
        """Return up to ``drafts`` tokens to copy for each request; their weight is 0 where there is no match."""
        return self.controller.copied(drafts).to(self.device)

    def choose(self) -> ChosenLength:
        """Choose the common draft length of the step.

        It must be called before any token is drafted: lossless verification requires that the length does not depend
        on sampled draft tokens.
        """
        longest = self.shape.nodes
        if not self.adapts:
            return ChosenLength(self.ways[0][longest], longest)
        shortest = longest if self.shape.children > 1 else 1
        way, length = self.controller.common_length(longest, self.ways, shortest)
        return ChosenLength(way[length], length)

    def extend_with_copied(self, draft: Draft, copied: Copied, chosen: ChosenLength) -> Draft:
        """Extend the drafter's draft with copied tokens to the chosen length, and note the draft of each request.

        Args:
            draft: Drafter tokens [B, k].
            copied: Tokens to copy, as returned by `copied`.
            chosen: As returned by `choose`.

        Returns:
            A draft [B, chosen.length].
        """
        longer = append_copied(draft, copied.first(chosen.length)).first(chosen.length)
        if self.adapts:
            self.controller.drafted(longer.tokens.tolist(), chosen.drafter_tokens)
        return longer


def empty_drafts(tokens: Tensor, vocab_size: int, mode: Mode) -> Draft:
    """Return drafts without tokens, [B, 0], for the requests of ``tokens``, int64 [B]."""
    none = tokens.new_empty(len(tokens), 0, dtype=torch.int64)
    return Draft(none, None if mode == "greedy" else one_hot(none, vocab_size))


def drafter_token_count(budget: DraftBudget, length: int) -> int:
    """Return how many tokens of a draft of this length the drafter drafts; the others are copied.

    A drafter with both parts always drafts all of its tokens: its parallel part runs after the whole loop.
    """
    if length and 0 < budget.steps < budget.tokens:
        return budget.tokens
    return min(length, budget.tokens)


def new_predictions(vocab_size: int) -> Predictions:
    """Return what reads the predictions of requests, with the served target's tokenizer.

    Args:
        vocab_size: V of the target.
    """
    return Predictions(lambda: load_tokenizer(str(get_serving().tokenizer_path)), vocab_size)


def predicted_text(predictions: Predictions, request: Any) -> list[int]:
    """Return the text that a request predicts in its ``custom_params``, see `Predictions.of`.

    Args:
        predictions: Reads it.
        request: SGLang's ``Req``.
    """
    return predictions.of(request.sampling_params.custom_params, request.origin_input_ids)


def append_copied(draft: Draft, copied: Copied) -> Draft:
    """Append the copied tokens beyond the end of a draft.

    The appended tokens are deterministic and carry a one-hot distribution.  All drafts of a step have one length in
    SGLang, so tokens are also appended to drafts that differ from the copied tokens; those are rarely accepted.

    Args:
        draft: Draft tokens [B, k].
        copied: Tokens to copy, [B, m], m at least k.

    Returns:
        A draft [B, m].
    """
    tokens = copied.tokens[:, draft.tokens.shape[1] :]
    if draft.probs is None:
        return concat_positions([draft, Draft(tokens, None)])
    return concat_positions([draft, Draft(tokens, one_hot(tokens, draft.probs.shape[2]))])
