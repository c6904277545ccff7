"""Penalties and `min_new_tokens`, exact at every draft.

SGLang applies those of a step's first token to all of its drafts, and counts one token of each step.  Here each node
is penalized by the tokens before it, and what was accepted is counted on the device, since with overlapping steps the
host does not know it yet.  Nothing is paid where no request asks for any of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from sglang.srt.runtime_context import get_schedule
from torch import Tensor

from mtpc.verify import penalties


class _Counted(NamedTuple):
    """How often each token is in a request's output before its pending token, int32 [V].

    retractions: the request's, when counting began: SGLang begins anew after each.
    """

    counts: Tensor
    retractions: int


_COUNTED: WeakKeyDictionary[Any, _Counted] = WeakKeyDictionary()  # by SGLang's ``Req``


class Penalized(NamedTuple):
    """A batch whose logits have been penalized.

    batch: for SGLang's rule, without penalties.  rows: int64 [P], those with penalties.  requests: P.
    counts: int32 [P, V].  pending: int64 [P], the tokens that the trees continue.
    """

    batch: Any
    rows: Tensor
    requests: Sequence[Any]
    counts: Tensor
    pending: Tensor

    def record(self, predicted: Tensor, lengths: Tensor, nodes: Tensor) -> None:
        """Count what a verdict, see `sglang_mtpc.verify.judge`, has put before the next pending token."""
        if not self.requests:
            return
        nodes, lengths = nodes[self.rows].long(), lengths[self.rows]
        said = predicted[nodes.clamp_min(0)].long()  # [P, depth + 1], its last one pending
        place = torch.arange(said.shape[1], device=said.device)
        said = said.masked_fill(place >= (lengths - 1)[:, None], -1)
        penalties.count(self.counts, torch.cat([self.pending[:, None], said], 1))
        for request, counts in zip(self.requests, self.counts, strict=True):
            _COUNTED[request] = _Counted(counts, request.retraction_count)


def asks_for_penalties(batch: Any) -> bool:
    """Whether SGLang would add any to the logits."""
    info = batch.sampling_info
    return info.acc_additive_penalties is not None or info.acc_scaling_penalties is not None


def penalize(tokens: Tensor, parents: Tensor, batch: Any, logits: Tensor) -> Penalized:
    """Penalize logits in place.

    tokens: int64 [B, N + 1], pending tokens and drafts.  parents: int64 [B, N].  logits: [B (N + 1), V].
    """
    batch, by_row = copy(batch), logits.view(*tokens.shape, -1)
    batch.sampling_info = copy(batch.sampling_info)
    batch.sampling_info.acc_additive_penalties = batch.sampling_info.acc_scaling_penalties = None
    device = logits.device
    late = not get_schedule().disable_overlap_schedule  # as where SGLang overlaps steps without drafts

    early = [row for row, request in enumerate(batch.reqs) if _may_end_too_early(request)]
    if early:
        rows = _sent(early, torch.int64, device)
        ends, least = zip(*(_ends_and_least(batch.reqs[row]) for row in early), strict=True)
        most = max(map(len, ends))
        padded = _sent([[*each, *each[:1] * (most - len(each))] for each in ends], torch.int64, device)
        missing = _sent(least, torch.int64, device) - (batch.seq_lens[rows] + 1)
        by_row[rows] = penalties.forbid_early_ends(by_row[rows], parents[rows], padded, missing)

    some = [row for row, request in enumerate(batch.reqs) if _is_penalized(request)]
    rows, requests = _sent(some, torch.int64, device), [batch.reqs[row] for row in some]
    if not some:
        return Penalized(batch, rows, (), logits.new_empty(0), tokens[rows, 0])
    counts = torch.stack([_counts(request, logits, late) for request in requests])
    asked = [request.sampling_params for request in requests]
    strengths = penalties.Penalties(
        *(
            _sent([getattr(each, f"{name}_penalty") for each in asked], torch.float32, device)
            for name in penalties.Penalties._fields
        )
    )
    by_row[rows] = penalties.penalize(by_row[rows], tokens[rows], parents[rows], counts, strengths, late)
    return Penalized(batch, rows, requests, counts, tokens[rows, 0])


def _is_penalized(request: Any) -> bool:
    asked = request.sampling_params
    return bool(asked.frequency_penalty or asked.presence_penalty or asked.repetition_penalty != 1.0)


def _may_end_too_early(request: Any) -> bool:
    """As far as the host knows, which with overlapping steps has not seen the last ones."""
    return request.sampling_params.min_new_tokens > len(request.output_ids) and bool(_ends_and_least(request)[0])


def _ends_and_least(request: Any) -> tuple[list[int], int]:
    """The tokens that end a request's text, and how many tokens prompt and text must have."""
    asked, tokenizer = request.sampling_params, request.tokenizer
    ends = {*(asked.stop_token_ids or ()), *(request.eos_token_ids or ())}
    if tokenizer is not None:
        ends |= {*(tokenizer.additional_stop_token_ids or ()), tokenizer.eos_token_id} - {None}
    return sorted(ends), len(request.origin_input_ids) + asked.min_new_tokens


def _counts(request: Any, logits: Tensor, late: bool) -> Tensor:
    """Of the tokens before the pending one, int32 [V]; where tokens count late, the prompt's last one is the first."""
    known = _COUNTED.get(request)
    if known is not None and known.retractions == request.retraction_count:
        return known.counts
    counts = torch.zeros(logits.shape[-1], dtype=torch.int32, device=logits.device)
    if late:
        counts[request.origin_input_ids[-1]] = 1
    return counts


def _sent(values: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Values of the host on the device, without waiting for it."""
    return torch.tensor(values, dtype=dtype, pin_memory=device.type == "cuda").to(device, non_blocking=True)
