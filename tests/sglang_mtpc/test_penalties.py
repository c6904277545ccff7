"""Penalties and `min_new_tokens` over many steps: the text is that of one token after the other without a drafter."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from mtpc.draft import Draft, TreeDraft
from sglang_mtpc import penalties, verify
from tests.oracles.penalties import counted_of, penalized
from tests.sglang_mtpc.test_verify import batch_of, built

V, PROMPT = 9, [3, 1, 4]
LINKS = {"chain": [-1, 0, 1], "tree": [-1, 0, -1, 2, 1]}
LATE = {"at once": True, "one token late": False}  # by whether steps are kept from overlapping
NONE = {"frequency_penalty": 0.0, "presence_penalty": 0.0, "repetition_penalty": 1.0, "min_new_tokens": 0}
ASKED = [
    {},
    {"frequency_penalty": 0.7, "presence_penalty": 0.3},
    {"repetition_penalty": 1.8},
    {"min_new_tokens": 9},
    {"frequency_penalty": 0.4, "repetition_penalty": 1.3, "min_new_tokens": 5},
]
ENDS = {2, 5}


class Request:
    """The parts of SGLang's ``Req`` that are read; by identity, as there."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.sampling_params = SimpleNamespace(top_k=1, stop_token_ids={2}, **NONE | asked)
        self.tokenizer = SimpleNamespace(additional_stop_token_ids=None, eos_token_id=5)
        self.eos_token_ids, self.retraction_count = None, 0
        self.origin_input_ids: list[int] = list(PROMPT)
        self.output_ids: list[int] = []


def target(text: list[int]) -> Tensor:
    """Logits [V] after a text."""
    return torch.randn(V, generator=torch.Generator().manual_seed(hash(tuple(text[-3:])) % 1000))


def token_after(output: list[int], asked: dict[str, Any], late: bool, first: int = 0) -> int:
    """The most likely token after an output, one at a time; first: where counting begins."""
    asked = NONE | asked
    logits = penalized(target(PROMPT + output), counted_of(PROMPT, output[first:], late), **asked)
    if len(output) < asked["min_new_tokens"]:
        logits[list(ENDS)] = -torch.inf
    return int(logits.argmax())


def contexts(output: list[int], tokens: list[int], links: list[int]) -> list[list[int]]:
    """The texts at the root and at each node."""
    found = [output]
    for token, parent in zip(tokens, links, strict=True):
        found.append([*found[parent + 1], token])
    return found


def distinct(tokens: list[int], links: list[int]) -> list[int]:
    """The drafts, where siblings are not the same token."""
    found: list[int] = []
    for token, parent in zip(tokens, links, strict=True):
        siblings = {each for each, other in zip(found, links, strict=False) if other == parent}
        found.append(next(each % V for each in range(token, token + V) if each % V not in siblings))
    return found


def step(requests: list[Request], outputs: list[list[int]], drafts: list[list[int]], links: list[int]) -> None:
    """Verify drafts of all requests, and append the emitted tokens to their outputs."""
    drafts = [distinct(tokens, links) for tokens in drafts]
    known = [contexts(output, tokens, links) for output, tokens in zip(outputs, drafts, strict=True)]
    logits = torch.stack([torch.stack([target(PROMPT + text) for text in row]) for row in known])
    batch = batch_of([1.0] * len(requests), top_k=[1] * len(requests))
    batch.reqs, batch.seq_lens = requests, torch.tensor([len(PROMPT) + len(output) - 1 for output in outputs])
    batch.sampling_info.acc_additive_penalties = torch.zeros(len(requests), V)  # SGLang's own, which are not used
    batch.sampling_info.acc_scaling_penalties = torch.ones(len(requests), V)
    tokens = torch.tensor(drafts)
    form = (
        Draft(tokens, None)
        if links == LINKS["chain"]
        else TreeDraft(tokens, torch.tensor([links] * len(drafts)), torch.zeros(tokens.shape))
    )
    given = built(form, len(requests), 3)
    given.draft_token.view(len(requests), -1)[:, 0] = torch.tensor([output[-1] for output in outputs])
    seen: list[Any] = []

    def original(verify_input: Any, batch: Any, *args: Any) -> None:
        seen.append((batch.sampling_info.acc_additive_penalties, batch.sampling_info.acc_scaling_penalties))

    output = SimpleNamespace(next_token_logits=logits.flatten(0, 1))
    predicted, lengths, nodes = verify.sample_and_verify(original, given, batch, output)
    assert seen == [(None, None)]
    for row, emitted in enumerate(outputs):
        emitted += predicted[nodes[row, : lengths[row]].long()].tolist()


@pytest.fixture(params=LATE)
def late(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether tokens count late, on one rank; then requests are penalized two at a time."""
    monkeypatch.setattr(verify, "get_parallel", lambda: SimpleNamespace(tp_group=SimpleNamespace(world_size=1)))
    schedule = SimpleNamespace(disable_overlap_schedule=LATE[request.param])
    monkeypatch.setattr(penalties, "get_schedule", lambda: schedule)
    if not schedule.disable_overlap_schedule:
        monkeypatch.setattr(penalties, "PART", 2 * V * (1 + max(map(len, LINKS.values()))))
    return not schedule.disable_overlap_schedule


@pytest.mark.parametrize("links", LINKS.values(), ids=LINKS)
def test_texts_are_those_without_drafts(links: list[int], late: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    requests, expected = [Request(asked) for asked in ASKED], []
    for asked in ASKED:
        text: list[int] = []
        while len(text) < 40:
            text.append(token_after(text, asked, late))
        expected.append(text)
    assert len(set(map(tuple, expected))) == len(ASKED), "the penalties change every text"
    outputs, steps = [text[:1] for text in expected], 0
    while min(map(len, outputs)) < 36:
        right = [(text[len(output) :] + [0] * 5)[: len(links)] for text, output in zip(expected, outputs, strict=True)]
        mixed = torch.rand(len(right), len(links), generator=generator) < 0.7
        other = torch.randint(V, mixed.shape, generator=generator)
        order = list(range(len(requests)))
        if steps % 3 == 2:  # SGLang puts requests into other rows, and some leave
            order = torch.randperm(len(requests), generator=generator).tolist()[:4]
        step([requests[row] for row in order], [outputs[row] for row in order],
             torch.where(mixed, torch.tensor(right), other)[order].tolist(), links)  # fmt: skip
        for request, output in zip(requests, outputs, strict=True):
            request.output_ids = output[:-2] if late else list(output)  # with overlap the host knows less
        steps += 1
    assert steps < 30, "drafts were accepted"
    for output, text in zip(outputs, expected, strict=True):
        assert output[:36] == text[:36]


def test_after_a_retraction_counting_begins_anew(late: bool) -> None:
    """As SGLang's own does."""
    asked = ASKED[1]
    request, output = Request(asked), [0]
    for _ in range(4):
        step([request], [output], [[1, 2, 3]], LINKS["chain"])
    request.retraction_count += 1
    first = len(output) - 1
    while len(output) < 30:
        step([request], [output], [[token_after(output, asked, late, first), 0, 1]], LINKS["chain"])
    text = output[: first + 1]
    while len(text) < 30:
        text.append(token_after(text, asked, late, first))
    assert output[:30] == text
