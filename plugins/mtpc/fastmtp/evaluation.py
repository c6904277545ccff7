"""Acceptance of a FastMTP drafter on held-out questions: expected, along the target's answers, and by the real loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mtpc.distill.conversations import Conversation
from mtpc.errors import MTPCError
from mtpc.evaluation.acceptance import expected_counts
from mtpc.fastmtp.decoding import speculate
from mtpc.fastmtp.head import SharedHead
from mtpc.fastmtp.layer import MTPLayer
from mtpc.fastmtp.unroll import unroll
from mtpc.targets.answers import write_answers
from mtpc.targets.frozen import FrozenTarget
from mtpc.verify import Rates, rates_from_counts, rates_from_marginal


class Answer(NamedTuple):
    """A question and what the target answered, its tokens from ``start`` on."""

    tokens: list[int]
    start: int


@torch.inference_mode()
def step_acceptance(
    target: FrozenTarget, layer: MTPLayer, head: SharedHead, answer: Answer, num_drafts: int, temperature: float
) -> Tensor:
    """The probability that each draft along an answer is accepted when those before it were: float64 [L', K].

    One row for each step that could start in the answer and whose drafts all lie in it.  Given the text, a draft that
    was accepted is the text's next token, so the states of a teacher-forced pass are those of drafting.
    """
    tokens = torch.tensor([answer.tokens], device=target.device)
    hidden = target.hidden(tokens)
    starts = tokens.shape[1] - num_drafts - 1
    first = answer.start - 1  # predicts the answer's first token
    log_p = torch.log_softmax(target.model.lm_head(hidden[0]).float() / (temperature or 1.0), -1)
    columns = []
    dtype = layer.input_proj.weight.dtype
    for step, states in enumerate(unroll(layer, head, hidden[:, :starts].to(dtype), tokens, num_drafts), 1):
        following = tokens[0, first + step + 1 : starts + step + 1]
        logits = head.logits(states[0, first:])
        if temperature == 0:
            columns.append(head.tokens(logits.argmax(-1)) == following)
        else:
            log_q = head.spread(torch.log_softmax(logits / temperature, -1), -torch.inf)
            ratio = at(log_q, following) - at(log_p[first + step : starts + step], following)
            columns.append(ratio.exp().clamp_max(1.0))
    return torch.stack(columns, -1).double().cpu()


def at(rows: Tensor, tokens: Tensor) -> Tensor:
    """One entry of each row: [N, V], int64 [N] -> [N]."""
    return rows.gather(-1, tokens[:, None])[:, 0]


def expected_acceptance(
    target: FrozenTarget,
    layer: MTPLayer,
    head: SharedHead,
    answers: Sequence[Answer],
    num_drafts: int,
    temperature: float,
) -> Rates:
    """Acceptance of speculative decoding along answers that the target gave at this temperature, in closed form."""
    steps, accepted = torch.zeros((), dtype=torch.float64), torch.zeros(num_drafts, dtype=torch.float64)
    for answer in answers:
        if len(answer.tokens) - answer.start < num_drafts + 1:  # too short for a step
            continue
        found = expected_counts(step_acceptance(target, layer, head, answer, num_drafts, temperature)[None])
        steps, accepted = steps + found[0], accepted + found[1]
    return rates_from_marginal((accepted / steps.clamp_min(1)).tolist())


def measured_acceptance(
    target: FrozenTarget,
    layer: MTPLayer,
    head: SharedHead,
    answers: Sequence[Answer],
    num_drafts: int,
    temperature: float,
    end: int | None,
    generator: torch.Generator,
) -> Rates:
    """Acceptance of the real loop, which answers the same questions to the same length."""
    counts: list[int] = []
    for tokens, start in answers:
        length = len(tokens) - start
        counts += speculate(
            target,
            layer,
            head,
            tokens[:start],
            length,
            num_drafts,
            end=end,
            temperature=temperature,
            generator=generator,
        ).accepted
    return rates_from_counts(len(counts), [sum(count > i for count in counts) for i in range(num_drafts)])


def evaluate_kinds(
    target: FrozenTarget,
    conversations: Sequence[Conversation],
    layers: dict[str, MTPLayer],
    *,
    num_drafts: int | None = None,
    questions: int = 16,
    length: int = 128,
    loop_questions: int = 2,
    temperatures: Sequence[float] = (0.0, 1.0),
    end: int | None = None,
    seed: int = 0,
) -> dict[str, dict[str, Any]]:
    """Acceptance of each drafter by kind of question and temperature: `Rates.to_json` by "chat T=0", "all T=1", ...

    conversations: held-out ones, whose questions the target answers anew.  num_drafts: by default, what each was
    trained for.  "..., real loop" are the rates of the first ``loop_questions`` of each kind, decoded step by step.

    Errors: `MTPCError` without a held-out conversation.
    """
    if not conversations:
        raise MTPCError("there is no held-out conversation to score drafters on: distil more.")
    head = SharedHead.of(target.model)
    kinds = sorted({conversation.kind for conversation in conversations})
    results: dict[str, dict[str, Any]] = {name: {} for name in layers}
    for temperature in temperatures:
        generator = torch.Generator(target.device).manual_seed(seed)
        by_kind: dict[str, list[Answer]] = {}
        for kind in kinds:
            asked = [each for each in conversations if each.kind == kind][:questions]
            prompts = [list(each.tokens[: each.start]) for each in asked]
            texts = write_answers(target, prompts, length, temperature, end, generator)
            by_kind[kind] = [Answer(text, len(prompt)) for text, prompt in zip(texts, prompts, strict=True)]
        few = [answer for answers in by_kind.values() for answer in answers[:loop_questions]]
        by_kind["all"] = [answer for answers in by_kind.values() for answer in answers]
        for name, layer in layers.items():
            drafts = num_drafts or layer.config.num_drafts
            for kind, answers in by_kind.items():
                rates = expected_acceptance(target, layer, head, answers, drafts, temperature)
                results[name][f"{kind} T={temperature:g}"] = rates.to_json()
            if few:
                cpu = torch.Generator().manual_seed(seed)
                rates = measured_acceptance(target, layer, head, few, drafts, temperature, end, cpu)
                results[name][f"all T={temperature:g}, real loop"] = rates.to_json()
    return results
