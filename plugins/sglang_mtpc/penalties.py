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

from mtpc.to_device import copy_to_device
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
        penalties.add_counts(self.counts, torch.cat([self.pending[:, None], said], 1))
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

    early = {row: ends for row, request in enumerate(batch.reqs) if (ends := _early_ends(request))}
    if early:
        rows, most = copy_to_device(torch.tensor(list(early)), device), max(map(len, early.values()))
        padded = torch.tensor([[*each, *each[:1] * (most - len(each))] for each in early.values()])
        least = [
            len(batch.reqs[row].origin_input_ids) + batch.reqs[row].sampling_params.min_new_tokens for row in early
        ]
        missing = copy_to_device(torch.tensor(least), device) - (batch.seq_lens[rows] + 1)
        by_row[rows] = penalties.forbid_early_ends(by_row[rows], parents[rows], copy_to_device(padded, device), missing)

    some = [row for row, request in enumerate(batch.reqs) if _is_penalized(request)]
    rows, requests = copy_to_device(torch.tensor(some, dtype=torch.int64), device), [batch.reqs[row] for row in some]
    if not some:
        return Penalized(batch, rows, (), logits.new_empty(0), tokens[rows, 0])
    counts = torch.stack([_counts(request, logits, late) for request in requests])
    asked = [request.sampling_params for request in requests]
    strengths = penalties.Penalties(
        *(
            copy_to_device(torch.tensor([float(getattr(each, f"{name}_penalty")) for each in asked]), device)
            for name in penalties.Penalties._fields
        )
    )
    by_row[rows] = penalties.penalize(by_row[rows], tokens[rows], parents[rows], counts, strengths, late)
    return Penalized(batch, rows, requests, counts, tokens[rows, 0])


def _is_penalized(request: Any) -> bool:
    asked = request.sampling_params
    return bool(asked.frequency_penalty or asked.presence_penalty or asked.repetition_penalty != 1.0)


def _early_ends(request: Any) -> list[int]:
    """The tokens that may not end a request's text yet; none where it is long enough, as far as the host knows.

    With overlapping steps the host has not seen the last tokens.
    """
    asked, tokenizer = request.sampling_params, request.tokenizer
    if asked.min_new_tokens <= len(request.output_ids):
        return []
    ends = {*(asked.stop_token_ids or ()), *(request.eos_token_ids or ())}
    if tokenizer is not None:
        ends |= {*(tokenizer.additional_stop_token_ids or ()), tokenizer.eos_token_id} - {None}
    return sorted(ends)


def _counts(request: Any, logits: Tensor, late: bool) -> Tensor:
    """Of the tokens before the pending one, int32 [V]; where tokens count late, the prompt's last one is the first."""
    known = _COUNTED.get(request)
    if known is not None and known.retractions == request.retraction_count:
        return known.counts
    counts = torch.zeros(logits.shape[-1], dtype=torch.int32, device=logits.device)
    if late:
        counts[request.origin_input_ids[-1]] = 1
    return counts
