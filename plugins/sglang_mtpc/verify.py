"""Verification of chains and trees: the input of SGLang's verification, and the core's rules where SGLang has none.

The core verifies in four cases.  On a CPU SGLang takes the most probable tokens at any temperature.  On all devices it
does not apply min-p to drafts, and knows no distributions that are computed when needed.  On CUDA it filters drafts by
top-k first and then by top-p, but requests without drafts by both at once.  In all other cases SGLang verifies: chains
by rejection sampling, trees by the target's own samples.  Penalties are always applied here.
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
from mtpc.draft_model.part import LazyDraft, LazyProbs
from mtpc.noise import counter_uniforms
from mtpc.verify import verify_rejection, verify_strings
from mtpc.verify.candidates import candidates, verify_rejection_candidates, verify_tree_candidates
from mtpc.verify.filters import filtered, filtered_by_min_p
from mtpc.verify.output import PADDING
from mtpc.verify.tree import verify_tree
from sglang_mtpc import finish
from sglang_mtpc.hooks import put_around
from sglang_mtpc.links import NO_PARENT, chain_links, parents_of, tree_links
from sglang_mtpc.penalties import has_penalties, penalize
from sglang_mtpc.shape import DraftShape

# Sampling backends that filter by top-k, then top-p, then min-p; others, like PyTorch's, apply all filters at once.
SEQUENTIAL_FILTERS = ("flashinfer", "intel_xpu")
HOOKED = "sglang.srt.speculative.eagle_worker_common.eagle_sample"
# Up to this top-k, and this share of the vocabulary, the top-k logits are selected before sorting.  Otherwise all
# logits are sorted, as for requests without top-k.
TOP_K, SHARE = 1024, 1 / 16
# Most elements of target distributions that are verified in one part, unless one request has more.  This takes 170 MB
# of memory with a small top-k, 250 MB where the whole vocabulary is sorted.  On a CPU a part fits into the caches,
# which halves the time.
PART, PART_SORTED, PART_ON_CPU = 1 << 25, 1 << 22, 1 << 18
_VERIFY_STREAM = 0x766572696679  # separates this noise from that of the drafts
_LAST_STREAM = 0x6C617374  # separates the noise of the last emitted tokens from that of acceptance


def install() -> None:
    """Wrap SGLang's ``eagle_sample`` with `sample_and_verify`, and install `sglang_mtpc.finish`."""
    put_around(HOOKED, sample_and_verify)
    finish.install()


def verify_input(
    batch: Any, draft_input: Any, drafts: Draft | TreeDraft | LazyDraft, shape: DraftShape, target_worker: Any
) -> Any:
    """Build SGLang's ``EagleVerifyInput``; for a chain it carries the draft distributions, whatever they are.

    Args:
        batch: SGLang's ``ScheduleBatch``.
        draft_input: Its ``EagleDraftInput``.
        drafts: Drafts of the batch.
        shape: Shape of the longest draft.
        target_worker: SGLang's worker of the target.

    Returns:
        SGLang's ``EagleVerifyInput``.
    """
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
    """Return the target's state of each request's last accepted token.

    Args:
        result: SGLang's ``GenerationBatchResult``, where accepted tokens are first in each request's rows.

    Returns:
        States [B, d].
    """
    hidden, lengths, width = result.logits_output.hidden_states, result.accept_lens, result.speculative_num_draft_tokens
    last: Tensor = hidden[torch.arange(0, len(lengths) * width, width, device=hidden.device) + lengths - 1]
    return last


class DraftsToVerify(NamedTuple):
    """Drafts of any drafter that are verified.

    Attributes:
        tokens: int64 [B, N].
        parents: int64 [B, N], -1 for a child of the root, otherwise an earlier node.
        probs: Distributions that a chain was sampled from, float32 [B, N, V] or lazy; None if not provided.
    """

    tokens: Tensor
    parents: Tensor
    probs: Tensor | LazyProbs | None


def read_drafts(built: Any) -> DraftsToVerify:
    """Read tokens, parents and distributions from SGLang's ``EagleVerifyInput``."""
    tokens = built.draft_token.view(-1, built.draft_token_num)[:, 1:]
    parents = parents_of(built.retrieve_next_token, built.retrieve_next_sibling)
    lost = parents == NO_PARENT
    return DraftsToVerify(tokens.masked_fill(lost, PADDING), parents.masked_fill(lost, -1), built.draft_probs)


def sample_and_verify(
    original: Any, verify_input: Any, batch: Any, logits_output: Any, *args: Any, **options: Any
) -> Any:
    """Verify drafts with exact penalties, by SGLang's rule where it is correct, otherwise by the core's.

    Args:
        original: SGLang's ``eagle_sample``.
        verify_input: SGLang's ``EagleVerifyInput``.
        batch: SGLang's ``ScheduleBatch``.
        logits_output: SGLang's, with logits [B (N + 1), V], which are penalized in place.
        *args: Further arguments of ``eagle_sample``.
        **options: Further arguments of ``eagle_sample``.

    Returns:
        As ``eagle_sample``: predicted tokens int32 [B (N + 1)], each at the node that it follows. Accepted lengths
        int32 [B], bonus token included. Accepted nodes int32 [B, depth + 1], numbered through the batch, then -1.
    """
    if not has_penalties(batch):
        return _verify(original, verify_input, batch, logits_output, *args, **options)
    drafts, bonus = read_drafts(verify_input), verify_input.draft_token.view(-1, verify_input.draft_token_num)[:, :1]
    penalized = penalize(torch.cat([bonus, drafts.tokens], 1), drafts.parents, batch, logits_output.next_token_logits)
    verified = _verify(original, verify_input, penalized.batch, logits_output, *args, **options)
    penalized.record(*verified)
    return verified


def _verify(original: Any, verify_input: Any, batch: Any, logits_output: Any, *args: Any, **options: Any) -> Any:
    """Verify without penalties, see `sample_and_verify`."""
    info = batch.sampling_info
    filters_differ = info.need_min_p_sampling or (info.need_top_k_sampling and info.need_top_p_sampling)
    lazy = not isinstance(verify_input.draft_probs, Tensor | None)
    if info.is_all_greedy or (is_cuda() and not filters_differ and not lazy):
        return original(verify_input, batch, logits_output, *args, **options)
    # SGLang's function adds biases and grammar masks to the logits in place.  With all requests marked as greedy, its
    # own verification costs only an argmax.
    greedy = copy(batch)
    greedy.sampling_info = copy(info)
    greedy.sampling_info.is_all_greedy = True
    original(verify_input, greedy, logits_output, *args, **options)
    return _as_sglang(
        *_sampled(read_drafts(verify_input), batch, logits_output.next_token_logits), verify_input.spec_steps
    )


def _sampled(drafts: DraftsToVerify, batch: Any, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Verify by the core's rules.

    Drafts with distributions are verified by rejection sampling, others by the target's own samples; both are lossless.
    A batch is verified in parts, because SGLang sizes its pools without this memory.

    Args:
        drafts: The drafts.
        batch: SGLang's ``ScheduleBatch``.
        logits: [B (N + 1), V], at the bonus token and at each draft token.

    Returns:
        Accepted draft tokens [B], emitted tokens [B, N + 1] and accepted nodes [B, N], see `TreeVerifyOutput`.
    """
    info = batch.sampling_info
    rows, nodes = drafts.tokens.shape
    logits, filters = logits.view(rows, nodes + 1, -1), (info.top_ks, info.top_ps, info.min_ps)
    ranks = info.need_top_k_sampling or info.need_top_p_sampling
    sequential = info.need_min_p_sampling and get_exec().kernel.sampling_backend in SEQUENTIAL_FILTERS
    uniforms = _uniforms(info.sampling_seed, batch.seq_lens, nodes + 1)
    limits = [request.sampling_params.top_k for request in batch.reqs]  # known to the host, unlike `info.top_ks`
    small_top_k = min(TOP_K, SHARE * logits.shape[-1])
    lazy = None if isinstance(drafts.probs, Tensor | None) else drafts.probs

    def verify_part(part: slice) -> tuple[Tensor, Tensor, Tensor]:
        tokens, parents, noise = drafts.tokens[part], drafts.parents[part], uniforms[part]
        probs = drafts.probs[part] if isinstance(drafts.probs, Tensor) else None
        temperatures, (top_k, top_p, min_p) = info.temperatures[part], (each[part] for each in filters)
        if (most := max(limits[part])) <= small_top_k and lazy is None:
            among = candidates(logits[part], temperatures[:, 0], top_k, top_p, min_p, most, sequential)
            if probs is None:
                return verify_tree_candidates(tokens, parents, among, noise)
            accepted, emitted = verify_rejection_candidates(tokens, probs, among, noise[:, :-1], noise[:, -1])
        else:
            target = (logits[part].double() / temperatures[:, None]).softmax(-1)
            if ranks:
                target = filtered(target, top_k, top_p, min_p, sequential)
            elif info.need_min_p_sampling:
                target = filtered_by_min_p(target, min_p)
            if lazy is not None:
                seeds = None if info.sampling_seed is None else info.sampling_seed[part] + _LAST_STREAM
                last = _uniforms(seeds, batch.seq_lens[part], target.shape[-1])
                stated = F.pad(lazy.stated[part], (0, nodes - lazy.stated.shape[1]), value=1.0).to(target.device)
                accepted, emitted = verify_strings(
                    tokens, stated, _OfPart(lazy, part.start), target, noise[:, :-1], last
                )
            elif probs is None:
                return verify_tree(tokens, parents, target, noise)
            else:
                accepted, emitted = verify_rejection(tokens, probs, target, noise[:, :-1], noise[:, -1])
        return accepted, emitted, torch.arange(nodes, device=logits.device).expand_as(tokens)

    most = PART_ON_CPU if logits.device.type == "cpu" else PART if max(limits) <= small_top_k else PART_SORTED
    size = max(1, most // logits[0].numel())
    parts = (slice(start, start + size) for start in range(0, rows, size))
    accepted, emitted, path = (torch.cat(each) for each in zip(*map(verify_part, parts), strict=True))
    return accepted, emitted, path


class _OfPart:
    """The distributions of a part of the batch."""

    def __init__(self, lazy: LazyProbs, start: int) -> None:
        self.lazy, self.start = lazy, start

    def of(self, rows: Tensor, positions: Tensor, tokens: Tensor) -> Tensor:
        """See `DraftProbs.of`."""
        return self.lazy.of(rows + self.start, positions, tokens).to(tokens.device)


def _uniforms(seeds: Tensor | None, positions: Tensor, size: int) -> Tensor:
    """Return uniform noise, float64 [B, size], from the requests' seeds where SGLang keeps them."""
    if seeds is None:
        return torch.rand(len(positions), size, dtype=torch.float64, device=positions.device)
    return counter_uniforms(seeds + _VERIFY_STREAM, positions, size)


def _as_sglang(accepted: Tensor, tokens: Tensor, path: Tensor, depth: int) -> tuple[Tensor, Tensor, Tensor]:
    """Convert the results of `_sampled` to those of `sample_and_verify`, equal on every tensor-parallel rank."""
    rows, width = tokens.shape
    index = torch.arange(width, device=tokens.device)
    used = index <= accepted[:, None]  # [B, N + 1]
    nodes = F.pad(path + 1, (1, 0))  # [B, N + 1], the bonus token first
    predicted = torch.zeros(rows, width + 1, dtype=torch.int64, device=tokens.device)
    predicted.scatter_(1, torch.where(used, nodes, width), tokens)
    first = torch.arange(0, rows * width, width, device=tokens.device)[:, None]
    verified = (
        predicted[:, :width].flatten().int(),
        (accepted + 1).int(),
        torch.where(used, nodes + first, -1)[:, : depth + 1].int().contiguous(),
    )
    group = get_parallel().tp_group
    if group.world_size > 1:
        for tensor in verified:
            group.broadcast(tensor, src=0)
    return verified
