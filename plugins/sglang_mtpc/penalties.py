"""Penalties and `min_new_tokens`, exact at every draft token.

SGLang applies the penalties of a step's first token to all draft tokens, and counts one token for each step.  Here each
node is penalized by the tokens on its own path.  Accepted tokens are counted on the device, because with overlapping
steps the host does not know them yet.  Batches without penalties skip this module.
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

# Most logits that are penalized at once, unless one request has more: SGLang sizes its pools without this memory.
PART = 1 << 22


class _TokenCounts(NamedTuple):
    """Counts of each token in a request's output before its bonus token, int32 [V].

    ``retractions`` is the request's when counting began: SGLang starts again after each retraction.
    """

    counts: Tensor
    retractions: int


_COUNTS_OF: WeakKeyDictionary[Any, _TokenCounts] = WeakKeyDictionary()  # key: SGLang's ``Req``


class Penalized(NamedTuple):
    """A batch whose logits have been penalized; `record` must follow once it is verified.

    Attributes:
        batch: Copy of the batch without penalties, for SGLang's verification.
        rows: Rows of the P requests with penalties, int64 [P].
        requests: SGLang's ``Req`` of these rows.
        counts: Token counts of their outputs, int32 [P, V].
        bonus_tokens: Their bonus tokens, which the drafts continue, int64 [P].
    """

    batch: Any
    rows: Tensor
    requests: Sequence[Any]
    counts: Tensor
    bonus_tokens: Tensor

    def record(self, predicted: Tensor, lengths: Tensor, nodes: Tensor) -> None:
        """Count the tokens that a step emitted before its bonus token.

        Args:
            predicted: As `sglang_mtpc.verify.sample_and_verify` returns them, like the others.
            lengths: Accepted lengths.
            nodes: Accepted nodes.
        """
        if not self.requests:
            return
        nodes, lengths = nodes[self.rows].long(), lengths[self.rows]
        emitted = predicted[nodes.clamp_min(0)].long()  # [P, depth + 1], the bonus token last
        index = torch.arange(emitted.shape[1], device=emitted.device)
        emitted = emitted.masked_fill(index >= (lengths - 1)[:, None], -1)
        penalties.add_counts(self.counts, torch.cat([self.bonus_tokens[:, None], emitted], 1))
        for request, counts in zip(self.requests, self.counts, strict=True):
            _COUNTS_OF[request] = _TokenCounts(counts, request.retraction_count)


def has_penalties(batch: Any) -> bool:
    """Return whether SGLang would add penalties to the logits."""
    info = batch.sampling_info
    return info.acc_additive_penalties is not None or info.acc_scaling_penalties is not None


def penalize(tokens: Tensor, parents: Tensor, batch: Any, logits: Tensor) -> Penalized:
    """Penalize logits in place.

    Args:
        tokens: Bonus tokens, then draft tokens, int64 [B, N + 1].
        parents: Parents of the draft tokens, int64 [B, N], -1 for a child of the root.
        batch: SGLang's ``ScheduleBatch``.
        logits: [B (N + 1), V].

    Returns:
        The batch to verify.
    """
    batch, by_row = copy(batch), logits.view(*tokens.shape, -1)
    batch.sampling_info = copy(batch.sampling_info)
    batch.sampling_info.acc_additive_penalties = batch.sampling_info.acc_scaling_penalties = None
    device = logits.device
    late = not get_schedule().disable_overlap_schedule  # as SGLang without drafts counts when steps overlap

    early = {row: ends for row, request in enumerate(batch.reqs) if (ends := _early_ends(request))}
    if early:
        rows, width = copy_to_device(torch.tensor(list(early)), device), max(map(len, early.values()))
        padded = torch.tensor([[*each, *each[:1] * (width - len(each))] for each in early.values()])
        min_lengths = [
            len(batch.reqs[row].origin_input_ids) + batch.reqs[row].sampling_params.min_new_tokens for row in early
        ]
        missing = copy_to_device(torch.tensor(min_lengths), device) - (batch.seq_lens[rows] + 1)
        by_row[rows] = penalties.forbid_early_ends(by_row[rows], parents[rows], copy_to_device(padded, device), missing)

    some = [row for row, request in enumerate(batch.reqs) if _is_penalized(request)]
    rows, requests = copy_to_device(torch.tensor(some, dtype=torch.int64), device), [batch.reqs[row] for row in some]
    if not some:
        return Penalized(batch, rows, (), logits.new_empty(0), tokens[rows, 0])
    counts = torch.stack([_counts(request, logits, late) for request in requests])
    params = [request.sampling_params for request in requests]
    strengths = penalties.Penalties(
        *(
            copy_to_device(torch.tensor([float(getattr(each, f"{name}_penalty")) for each in params]), device)
            for name in penalties.Penalties._fields
        )
    )
    size = max(1, PART // by_row[0].numel())
    for start in range(0, len(some), size):
        part = slice(start, start + size)
        some_rows, some_strengths = rows[part], penalties.Penalties(*(each[part] for each in strengths))
        by_row[some_rows] = penalties.penalize(
            by_row[some_rows], tokens[some_rows], parents[some_rows], counts[part], some_strengths, late
        )
    return Penalized(batch, rows, requests, counts, tokens[rows, 0])


def _is_penalized(request: Any) -> bool:
    params = request.sampling_params
    return bool(params.frequency_penalty or params.presence_penalty or params.repetition_penalty != 1.0)


def _early_ends(request: Any) -> list[int]:
    """Return the tokens that may not end a request yet; none once the host knows `min_new_tokens` of its tokens.

    With overlapping steps the host does not know the tokens of the last step.
    """
    params, tokenizer = request.sampling_params, request.tokenizer
    if params.min_new_tokens <= len(request.output_ids):
        return []
    ends = {*(params.stop_token_ids or ()), *(request.eos_token_ids or ())}
    if tokenizer is not None:
        ends |= {*(tokenizer.additional_stop_token_ids or ()), tokenizer.eos_token_id} - {None}
    return sorted(ends)


def _counts(request: Any, logits: Tensor, late: bool) -> Tensor:
    """Return the counts of output tokens before the bonus token, int32 [V].

    With ``late``, tokens are counted one step late, beginning with the last one of the prompt.
    """
    known = _COUNTS_OF.get(request)
    if known is not None and known.retractions == request.retraction_count:
        return known.counts
    counts = torch.zeros(logits.shape[-1], dtype=torch.int32, device=logits.device)
    if late:
        counts[request.origin_input_ids[-1]] = 1
    return counts
