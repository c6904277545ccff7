"""Verification at temperatures above 0 where SGLang has no correct rule: the core's rules in its place.

On a CPU SGLang takes the most likely tokens at any temperature, and on no device does it apply min-p to drafts.  On
CUDA, for all else, its own rules stand: rejection sampling for chains, target-only sampling for trees.  There a request
with both top-k and top-p is filtered by one after the other, as SGLang does for all drafters, where without drafts it
is filtered by both at once; the core does the latter.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from sglang.srt.plugins.hook_registry import HookRegistry, HookType
from sglang.srt.runtime_context import get_parallel
from sglang.srt.utils import is_cuda
from torch import Tensor
from torch.nn import functional as F

from mtpc.drafter import Draft, TreeDraft
from mtpc.noise import counter_uniforms
from mtpc.verify import verify_rejection
from mtpc.verify.filters import filtered
from mtpc.verify.tree import verify_tree

HOOKED = "sglang.srt.speculative.eagle_worker_common.eagle_sample"
_VERIFY_STREAM = 0x766572696679  # keeps these uniforms apart from those that the drafts of the same request used


@cache
def install() -> None:
    """Put `judge` around SGLang's rule, once in this process."""
    HookRegistry.register(HOOKED, judge, HookType.AROUND)
    HookRegistry.apply_hooks()


def judge(original: Any, verify_input: Any, batch: Any, logits_output: Any, *args: Any, **options: Any) -> Any:
    """SGLang's verdict where it is right, else the core's.

    Returns SGLang's three: predicted tokens int32 [B (N + 1)], each at the node that it follows; accepted lengths
    int32 [B], with the target's own token; accepted nodes int32 [B, steps + 1], numbered through the batch, then -1.
    """
    # Called in any case: it puts penalties, biases and grammars into the logits, in place.
    verdict = original(verify_input, batch, logits_output, *args, **options)
    info = batch.sampling_info
    if info.is_all_greedy or (is_cuda() and not info.need_min_p_sampling):
        return verdict
    return _as_sglang(*_sampled(_drafts(verify_input), batch, logits_output.next_token_logits), verify_input.spec_steps)


def _drafts(verify_input: Any) -> Draft | TreeDraft:
    """What is to be verified: as `MTPCWorker` drafted it, or the chains that SGLang's own worker did."""
    if not hasattr(verify_input, "drafts"):
        tokens = verify_input.draft_token.view(-1, verify_input.draft_token_num)[:, 1:]
        return Draft(tokens, verify_input.draft_probs)
    drafts: Draft | TreeDraft = verify_input.drafts
    return drafts


def _sampled(drafts: Draft | TreeDraft, batch: Any, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """By the core's rules: accepted drafts [B], emitted tokens [B, N + 1], accepted nodes [B, N] (see `TreeVerdict`).

    logits: [B (N + 1), V], at the pending token and at each draft.
    """
    info = batch.sampling_info
    rows, nodes = drafts.tokens.shape
    target = (logits.view(rows, nodes + 1, -1).double() / info.temperatures[:, :, None]).softmax(-1)
    if info.need_top_k_sampling or info.need_top_p_sampling or info.need_min_p_sampling:
        target = filtered(target, info.top_ks, info.top_ps, info.min_ps)
    uniforms = _uniforms(info.sampling_seed, batch.seq_lens, nodes + 1)
    if isinstance(drafts, TreeDraft):
        return verify_tree(drafts.tokens, drafts.parents, target, uniforms)
    assert drafts.probs is not None  # only batches of greedy requests are drafted without
    verdict = verify_rejection(drafts.tokens, drafts.probs, target, uniforms[:, :-1], uniforms[:, -1])
    return verdict.accepted, verdict.tokens, torch.arange(nodes, device=logits.device).expand(rows, nodes)


def _uniforms(seeds: Tensor | None, positions: Tensor, size: int) -> Tensor:
    """float32 [B, size], from the requests' seeds where SGLang keeps them."""
    if seeds is None:
        return torch.rand(len(positions), size, device=positions.device)
    return counter_uniforms(seeds + _VERIFY_STREAM, positions, size)


def _as_sglang(accepted: Tensor, tokens: Tensor, path: Tensor, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """A verdict of `_sampled` as the three tensors of `judge`, the same on every tensor-parallel rank."""
    rows, width = tokens.shape
    index = torch.arange(width, device=tokens.device)
    used = index <= accepted[:, None]  # [B, N + 1]
    nodes = F.pad(path + 1, (1, 0))  # [B, N + 1], the pending token first
    predicted = torch.zeros(rows, width + 1, dtype=torch.int64, device=tokens.device)
    predicted.scatter_(1, torch.where(used, nodes, width), tokens)
    first = torch.arange(0, rows * width, width, device=tokens.device)[:, None]
    verdict = (
        predicted[:, :width].flatten().int(),
        (accepted + 1).int(),
        torch.where(used, nodes + first, -1)[:, : steps + 1].int().contiguous(),
    )
    group = get_parallel().tp_group
    if group.world_size > 1:
        for tensor in verdict:
            group.broadcast(tensor, src=0)
    return verdict
