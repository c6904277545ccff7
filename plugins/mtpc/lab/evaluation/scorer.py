"""The probability that each draft along a text is accepted: of a drafter of any draft method, part by part.

Given the text, a draft that was accepted is the text's next token, so a teacher-forced pass of the autoregressive part and the
window's distribution given the text are those of drafting.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mtpc.draft import DraftContext
from mtpc.lab.evaluation.texts import View
from mtpc.methods.drafter import Drafter
from mtpc.parallel.head_inputs import with_head_inputs
from mtpc.target_head.shared import SharedHead


@torch.inference_mode()
def step_acceptance(
    drafter: Drafter,
    head: SharedHead,
    text: View,
    num_drafts: int,
    temperature: float,
    *,
    conditioned: bool = True,
) -> Tensor:
    """min(1, q / p) of each of K drafts, in each step that could start in what the target wrote: float64 [L', K].

    Each is given the text before it, also where an earlier one would not have been accepted.  At temperature 0: whether
    the most probable token is the text's.  head: what the autoregressive part drafts from; the target's, or its rows of a draft
    vocabulary.  conditioned: see `ParallelPart.log_probs`.

    The drafter stays where it is and as it is: on the target's device, of any type.
    """
    positions, following = text.steps(num_drafts)  # following: [L', K + 1], x_{t+1} and on
    if not len(following):
        return torch.zeros(0, num_drafts, dtype=torch.float64)
    hidden = text.hidden.to(next(drafter.parameters()).dtype)
    states, columns = [hidden[positions]], []
    log_p = own_log_probs(text, num_drafts, temperature)  # [L', K]
    autoregressive, parallel = drafter.split(num_drafts)
    if autoregressive:
        from mtpc.lab.evaluation.unroll import unroll

        assert drafter.autoregressive is not None
        known = hidden[None, : positions.stop]
        for step, outputs in enumerate(unroll(drafter.autoregressive, head, known, text.tokens[None], autoregressive)):
            states.append(outputs[0, positions])
            logits = head.logits(states[-1])  # [L', R]
            columns.append(_accepted(head, logits, following[:, step + 1], log_p[:, step], temperature)[:, None])
    if parallel:
        assert drafter.parallel is not None  # part of the contract: K is no more than the drafter can draft
        given = DraftContext(torch.stack(states, 1), following[:, : autoregressive + 1])
        if drafter.parallel.reads_autoregressive:
            assert drafter.autoregressive is not None  # part of the contract: such a window goes on from one
            given = with_head_inputs(given, drafter.autoregressive, head)
        rest = following[:, autoregressive + 1 :]
        if temperature == 0:
            columns.append(drafter.parallel.most_probable_tokens(given, rest) == rest)
        else:
            log_q = drafter.parallel.log_probs(given, rest, temperature, conditioned)
            columns.append((log_q - log_p[:, autoregressive:]).exp().clamp_max(1.0))
    return torch.cat([column.double() for column in columns], 1).cpu()


def own_log_probs(text: View, num_drafts: int, temperature: float) -> Tensor:
    """The target's log p(x_{t+1+k}) of the tokens that drafts 1..K are compared with: [L', K]."""
    log_p = torch.log_softmax(text.logits[:-1] / (temperature or 1.0), -1)
    return at(log_p, text.tokens[1:]).unfold(0, num_drafts, 1)[text.start :]


def _accepted(head: SharedHead, logits: Tensor, tokens: Tensor, log_p: Tensor, temperature: float) -> Tensor:
    """Of one draft step: logits [L', R] of the draft vocabulary, tokens int64 [L'] -> [L']."""
    if temperature == 0:
        return head.tokens_of(logits.argmax(-1)) == tokens
    log_q = head.spread(torch.log_softmax(logits / temperature, -1), -torch.inf)
    return (at(log_q, tokens) - log_p).exp().clamp_max(1.0)


def at(rows: Tensor, tokens: Tensor) -> Tensor:
    """One entry of each row: [N, V], int64 [N] -> [N]."""
    return rows.gather(-1, tokens[:, None])[:, 0]
