"""Verification of any chain or tree: the input that SGLang verifies, and the core's rules where it has no correct one.

On a CPU SGLang takes the most likely tokens at any temperature, on no device does it apply min-p to drafts, and on CUDA
drafts are filtered by top-p after top-k, where a request without drafts is filtered by both at once.  On CUDA, for all
else, its own rules stand: rejection sampling for chains, target-only sampling for trees.  Penalties are always ours.
"""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple

import torch
from sglang.srt.runtime_context import get_exec, get_parallel
from sglang.srt.speculative.eagle_utils import default_tree_mask_mode
from sglang.srt.speculative.eagle_worker_common import build_eagle_verify_input
from sglang.srt.utils import is_cuda
from torch import Tensor
from torch.nn import functional as F

from mtpc.draft import Draft, TreeDraft
from mtpc.noise import counter_uniforms
from mtpc.verify import verify_rejection
from mtpc.verify.candidates import candidates, verify_rejection_candidates, verify_tree_candidates
from mtpc.verify.filters import filtered, filtered_by_min_p
from mtpc.verify.output import PADDING
from mtpc.verify.tree import verify_tree
from sglang_mtpc import finish
from sglang_mtpc.hooks import put_around
from sglang_mtpc.links import NOWHERE, chain_links, parents_of, tree_links
from sglang_mtpc.penalties import asks_for_penalties, penalize
from sglang_mtpc.shape import Shape

# Which filter min-p after top-p after top-k; all else filters at once, PyTorch's sampling in any case.
IN_TURN = ("flashinfer", "intel_xpu")
HOOKED = "sglang.srt.speculative.eagle_worker_common.eagle_sample"
# The largest top-k, and its largest share of the vocabulary, that is taken out of the logits first, so that only so
# many columns are sorted.  Of a larger one all are sorted, as where a request has no top-k.
TOP_K, SHARE = 1024, 1 / 16
# Numbers of the target's distributions that are verified together, or those of one request: 170 MB of memory where all
# requests have such a top-k, 250 MB where a whole vocabulary is sorted; on a CPU what its caches hold, which takes half
# as long as all at once.
PART, PART_SORTED, PART_ON_CPU = 1 << 25, 1 << 22, 1 << 18
_VERIFY_STREAM = 0x766572696679  # keeps these uniforms apart from those that the drafts of the same request used


def install() -> None:
    """Put `judge` around SGLang's rule, and `sglang_mtpc.finish` around what ends a text."""
    put_around(HOOKED, judge)
    finish.install()


def verify_input(batch: Any, draft_input: Any, drafts: Draft | TreeDraft, shape: Shape, target_worker: Any) -> Any:
    """SGLang's ``EagleVerifyInput``; a chain's carries the distributions that its tokens were drawn from."""
    device = drafts.tokens.device
    nodes, depth = drafts.tokens.shape[1], shape.depth
    if isinstance(drafts, TreeDraft):
        links, probs = tree_links(drafts.parents, shape.most_children), None
    else:
        links, probs, depth = chain_links(*drafts.tokens.shape, device), drafts.probs, nodes
    built = build_eagle_verify_input(
        batch,
        draft_input,
        links.parents,
        links.selected,
        drafts.tokens.contiguous(),
        probs,
        target_worker=target_worker,
        topk=shape.most_children,
        num_steps=nodes,  # see `tree_links`
        num_draft_tokens=nodes + 1,
        tree_mask_mode=default_tree_mask_mode(),
        device=device.type,
    )
    built.spec_steps = depth
    return built


def last_accepted(result: Any) -> Tensor:
    """The target's state of each request's last accepted token, [B, d], of SGLang's ``GenerationBatchResult``.

    SGLang has moved what was accepted to the front of each request's rows.
    """
    hidden, lengths, width = result.logits_output.hidden_states, result.accept_lens, result.speculative_num_draft_tokens
    last: Tensor = hidden[torch.arange(0, len(lengths) * width, width, device=hidden.device) + lengths - 1]
    return last


class Drafted(NamedTuple):
    """What is to be verified, whoever drafted it.

    tokens: int64 [B, N].  parents: int64 [B, N], -1 for a child of the root, earlier nodes otherwise.  probs: float32
    [B, N, V], the distributions that the tokens of a chain were drawn from; None where none is stated.
    """

    tokens: Tensor
    parents: Tensor
    probs: Tensor | None


def drafted(built: Any) -> Drafted:
    """Read off SGLang's ``EagleVerifyInput``: its tokens, its links and what it states."""
    tokens = built.draft_token.view(-1, built.draft_token_num)[:, 1:]
    parents = parents_of(built.retrieve_next_token, built.retrieve_next_sibling)
    lost = parents == NOWHERE
    return Drafted(tokens.masked_fill(lost, PADDING), parents.masked_fill(lost, -1), built.draft_probs)


def judge(original: Any, verify_input: Any, batch: Any, logits_output: Any, *args: Any, **options: Any) -> Any:
    """SGLang's verdict where it is right, else the core's, of logits that are penalized at each draft.

    Returns SGLang's three: predicted tokens int32 [B (N + 1)], each at the node that it follows; accepted lengths
    int32 [B], with the target's own token; accepted nodes int32 [B, depth + 1], numbered through the batch, then -1.
    """
    if not asks_for_penalties(batch):
        return _verdict(original, verify_input, batch, logits_output, *args, **options)
    drafts, pending = drafted(verify_input), verify_input.draft_token.view(-1, verify_input.draft_token_num)[:, :1]
    penalized = penalize(torch.cat([pending, drafts.tokens], 1), drafts.parents, batch, logits_output.next_token_logits)
    verdict = _verdict(original, verify_input, penalized.batch, logits_output, *args, **options)
    penalized.record(*verdict)
    return verdict


def _verdict(original: Any, verify_input: Any, batch: Any, logits_output: Any, *args: Any, **options: Any) -> Any:
    """`judge` of logits as they are."""
    info = batch.sampling_info
    ours = info.need_min_p_sampling or (info.need_top_k_sampling and info.need_top_p_sampling)
    if info.is_all_greedy or (is_cuda() and not ours):
        return original(verify_input, batch, logits_output, *args, **options)
    # Called for what it puts into the logits, in place: biases and grammars; as if all requests were greedy, where it
    # verifies with one argmax.
    greedy = copy(batch)
    greedy.sampling_info = copy(info)
    greedy.sampling_info.is_all_greedy = True
    original(verify_input, greedy, logits_output, *args, **options)
    return _as_sglang(*_sampled(drafted(verify_input), batch, logits_output.next_token_logits), verify_input.spec_steps)


def _sampled(drafts: Drafted, batch: Any, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """By the core's rules: accepted drafts [B], emitted tokens [B, N + 1], accepted nodes [B, N] (`TreeVerifyOutput`).

    Rejection sampling where distributions are stated; else the target alone chooses, which is lossless for any tree.
    logits: [B (N + 1), V], at the pending token and at each draft.  Some requests are verified at a time: SGLang has
    sized its pools without the memory that this takes.  Requests with a small top-k are verified among so many tokens.
    """
    info = batch.sampling_info
    rows, nodes = drafts.tokens.shape
    logits, filters = logits.view(rows, nodes + 1, -1), (info.top_ks, info.top_ps, info.min_ps)
    ranks = info.need_top_k_sampling or info.need_top_p_sampling
    in_turn = info.need_min_p_sampling and get_exec().kernel.sampling_backend in IN_TURN
    uniforms = _uniforms(info.sampling_seed, batch.seq_lens, nodes + 1)
    limits = [request.sampling_params.top_k for request in batch.reqs]  # known to the host, unlike `info.top_ks`
    few = min(TOP_K, SHARE * logits.shape[-1])

    def verdict(part: slice) -> tuple[Tensor, Tensor, Tensor]:
        tokens, parents, noise = drafts.tokens[part], drafts.parents[part], uniforms[part]
        probs = None if drafts.probs is None else drafts.probs[part]
        heat, (top_k, top_p, min_p), most = info.temperatures[part], (each[part] for each in filters), max(limits[part])
        if most <= few:
            among = candidates(logits[part], heat[:, 0], top_k, top_p, min_p, most, in_turn)
            if probs is None:
                return verify_tree_candidates(tokens, parents, among, noise)
            accepted, emitted = verify_rejection_candidates(tokens, probs, among, noise[:, :-1], noise[:, -1])
        else:
            target = (logits[part].double() / heat[:, None]).softmax(-1)
            if ranks:
                target = filtered(target, top_k, top_p, min_p, in_turn)
            elif info.need_min_p_sampling:
                target = filtered_by_min_p(target, min_p)
            if probs is None:
                return verify_tree(tokens, parents, target, noise)
            accepted, emitted = verify_rejection(tokens, probs, target, noise[:, :-1], noise[:, -1])
        return accepted, emitted, torch.arange(nodes, device=logits.device).expand_as(tokens)

    most = PART_ON_CPU if logits.device.type == "cpu" else PART if max(limits) <= few else PART_SORTED
    size = max(1, most // logits[0].numel())
    parts = (slice(start, start + size) for start in range(0, rows, size))
    accepted, emitted, path = (torch.cat(each) for each in zip(*map(verdict, parts), strict=True))
    return accepted, emitted, path


def _uniforms(seeds: Tensor | None, positions: Tensor, size: int) -> Tensor:
    """float64 [B, size], from the requests' seeds where SGLang keeps them."""
    if seeds is None:
        return torch.rand(len(positions), size, dtype=torch.float64, device=positions.device)
    return counter_uniforms(seeds + _VERIFY_STREAM, positions, size)


def _as_sglang(accepted: Tensor, tokens: Tensor, path: Tensor, depth: int) -> tuple[Tensor, Tensor, Tensor]:
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
        torch.where(used, nodes + first, -1)[:, : depth + 1].int().contiguous(),
    )
    group = get_parallel().tp_group
    if group.world_size > 1:
        for tensor in verdict:
            group.broadcast(tensor, src=0)
    return verdict
