"""Acceptance probability of each draft token along a text, for drafters of any method.

Given the text, an accepted draft token is the next token of the text. A teacher-forced pass of the autoregressive part,
and the parallel part's distribution given the text, therefore equal those of drafting.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mtpc.draft import DraftContext
from mtpc.lab.evaluation.texts import TextFeatures
from mtpc.methods.drafter import Drafter
from mtpc.parallel.head_inputs import with_head_inputs
from mtpc.target_head.shared import SharedHead


@torch.inference_mode()
def step_acceptance(
    drafter: Drafter,
    head: SharedHead,
    text: TextFeatures,
    num_drafts: int,
    temperature: float,
    *,
    conditioned: bool = True,
) -> Tensor:
    """Return min(1, q / p) of each draft token, for each step that could start in the generated text.

    Each probability is conditioned on the text before it, even where an earlier draft token would be rejected. At
    temperature 0 it is 1 where the most probable token is the text's, else 0.

    Args:
        drafter: Drafter on the target's device, of any dtype.
        head: Output head of the target, or its rows of a draft vocabulary.
        text: Text with the target's features.
        num_drafts: Draft tokens K per step.
        temperature: Temperature of target and drafter; 0 is greedy.
        conditioned: Whether the parallel part is conditioned on known tokens, see `ParallelPart.log_probs`.

    Returns:
        Conditional acceptance probabilities, float64 [L', K], on the CPU.
    """
    positions, following = text.steps(num_drafts)  # following: [L', K + 1], x_{t+1} and on
    if not len(following):
        return torch.zeros(0, num_drafts, dtype=torch.float64)
    hidden = text.hidden.to(next(drafter.parameters()).dtype)
    states, columns = [hidden[positions]], []  # columns: whether the token is drafted; above temperature 0 its log q
    autoregressive, parallel = drafter.split(num_drafts)
    if autoregressive:
        from mtpc.lab.evaluation.unroll import unroll

        assert drafter.autoregressive is not None
        read = hidden[None, : positions.stop]
        for step, outputs in enumerate(unroll(drafter.autoregressive, head, read, text.tokens[None], autoregressive)):
            states.append(outputs[0, positions])
            logits = head.logits(states[-1])  # [L', R]
            columns.append(_drafted(head, logits, following[:, step + 1], temperature)[:, None])
    if parallel:
        assert drafter.parallel is not None  # the caller has checked K against the drafter
        given = DraftContext(torch.stack(states, 1), following[:, : autoregressive + 1])
        if drafter.parallel.reads_head:
            given = with_head_inputs(given, drafter.autoregressive, head)
        rest = following[:, autoregressive + 1 :]
        if temperature == 0:
            columns.append(drafter.parallel.most_probable_tokens(given, rest) == rest)
        else:
            columns.append(drafter.parallel.log_probs(given, rest, temperature, conditioned))
    found = torch.cat([column.double() for column in columns], 1)  # [L', K]
    if temperature > 0:
        found = (found - target_log_probs(text, num_drafts, temperature)).exp().clamp_max(1.0)
    return found.cpu()


def target_log_probs(text: TextFeatures, num_drafts: int, temperature: float) -> Tensor:
    """Return the target's log p(x_{t+1+k}) of the tokens that draft tokens k = 1..K are compared with: [L', K].

    Temperatures are above 0.
    """
    log_p = torch.log_softmax(text.logits[text.start : -1] / temperature, -1)
    return gather_tokens(log_p, text.tokens[text.start + 1 :]).unfold(0, num_drafts, 1)


def _drafted(head: SharedHead, logits: Tensor, tokens: Tensor, temperature: float) -> Tensor:
    """Return whether one draft step drafts tokens, int64 [L'], or their log q; logits [L', R] of a draft vocabulary."""
    if temperature == 0:
        return head.tokens_of(logits.argmax(-1)) == tokens
    return gather_tokens(head.spread(torch.log_softmax(logits / temperature, -1), -torch.inf), tokens)


def gather_tokens(rows: Tensor, tokens: Tensor) -> Tensor:
    """Return one entry of each row: [N, V], int64 [N] -> [N]."""
    return rows.gather(-1, tokens[:, None])[:, 0]
