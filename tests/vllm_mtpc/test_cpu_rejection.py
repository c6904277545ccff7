"""vLLM's rejection sampler on a CPU, where it is ours: what is said, its distribution, and what is left to vLLM."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from vllm.v1.sample.logits_processor import LogitsProcessors, MinTokensLogitsProcessor
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

from mtpc.lab.statistics.chi_square import REJECT_BELOW, chi_square_p_value
from vllm_mtpc.cpu_rejection import _in_one_go

DRAFTS, NOBODY = [[3, 1], [], [2]], torch.zeros(0)


def metadata(drafts: list[list[int]]) -> SpecDecodeMetadata:
    """vLLM's, as far as it is read."""
    counts = torch.tensor([[len(one), len(one) + 1] for one in drafts]).cumsum(0).int()
    flat = torch.tensor([token for one in drafts for token in one], dtype=torch.int32)
    return SpecDecodeMetadata(flat, list(map(len, drafts)), *counts.T, NOBODY, NOBODY, NOBODY)


def sampling(temperature: float | list[float] = 0.0, **changed: Any) -> SamplingMetadata:
    """vLLM's, of requests that want nothing but tokens."""
    temperatures = torch.tensor([temperature] * len(DRAFTS) if isinstance(temperature, float) else temperature)
    greedy = temperatures == 0
    how: dict[str, Any] = {
        "temperature": temperatures,
        "all_greedy": bool(greedy.all()),
        "all_random": not greedy.any(),
        "top_p": None,
        "top_k": None,
        "generators": {},
        "max_num_logprobs": None,
        "no_penalties": True,
        **dict.fromkeys(("prompt_token_ids", "allowed_token_ids_mask")),
        **dict.fromkeys(("frequency_penalties", "presence_penalties", "repetition_penalties"), NOBODY),
        "output_token_ids": [],
        "bad_words_token_ids": {},
        "logitsprocs": LogitsProcessors([min_tokens()]),
    }
    return SamplingMetadata(**how | changed)


def min_tokens(**requests: Any) -> MinTokensLogitsProcessor:
    """The one processor of logits that vLLM has beside a drafter."""
    processor = object.__new__(MinTokensLogitsProcessor)
    processor.min_toks = requests  # type: ignore[assignment]  # whatever is in it
    return processor


def constrained(logits: Tensor, counts: Tensor, how: SamplingMetadata) -> Tensor:
    """Temperature alone, row by row; in place, as vLLM's."""
    assert how.temperature is not None
    each = torch.diff(counts, prepend=counts.new_zeros(1)).long()
    return logits.div_(how.temperature.repeat_interleave(each)[:, None])


def sampled(
    logits: Tensor,
    how: SamplingMetadata,
    probs: Tensor | None = None,
    drafts: list[list[int]] = DRAFTS,
    synthetic: bool = False,
) -> Any:
    """What the sampler returns; "theirs" and the arguments where it leaves everything to vLLM."""
    sampler = SimpleNamespace(greedy_sample=lambda rows: rows.argmax(-1))
    judging = SimpleNamespace(synthetic_mode=synthetic, sampler=sampler)
    forward = _in_one_go(lambda *given: ("theirs", *given), constrained)
    return forward(judging, metadata(drafts), probs, logits, how)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_accepted_tokens_then_one_more_then_nothing(temperature: float, dtype: torch.dtype) -> None:
    logits = torch.full((6, 10), -30.0, dtype=dtype)
    for row, token in enumerate((3, 5, 7, 8, 2, 9)):
        logits[row, token] = 30.0
    found = sampled(logits, sampling(temperature))
    assert found.logprobs_tensors is None
    assert found.sampled_token_ids.dtype == torch.int32
    assert found.sampled_token_ids.tolist() == [[3, 5, -1], [8, -1, -1], [2, 9, -1]]


LEFT = {
    "some are greedy": sampling([0.0, 1.0, 0.0]),
    "a seed": sampling(1.0, generators={1: torch.Generator()}),
    "log probabilities": sampling(max_num_logprobs=0),
    "of some tokens": sampling(logprob_token_ids={0: [1]}),
    "penalties": sampling(no_penalties=False),
    "bad words": sampling(bad_words_token_ids={0: [[1]]}),
    "allowed tokens": sampling(allowed_token_ids_mask=torch.zeros(3, 10, dtype=torch.bool)),
    "at least so many": sampling(logitsprocs=LogitsProcessors([min_tokens(one=1)])),
    "a budget": sampling(thinking_budget_state_holder=SimpleNamespace(has_tracked_requests=lambda: True)),
}


@pytest.mark.parametrize("why", LEFT)
def test_the_rest_is_left_to_vllm(why: str) -> None:
    logits = torch.zeros(6, 10)
    name, _, told, probs, given, how = sampled(logits, LEFT[why])
    assert name == "theirs"
    assert told.num_draft_tokens == [2, 0, 1]
    assert (probs, how) == (None, LEFT[why])
    assert given is logits
    assert not logits.any()  # nothing was done to it


def test_rates_that_are_made_up_and_tokens_that_are_none_are_left_to_vllm() -> None:
    logits = torch.zeros(6, 10)
    assert sampled(logits, sampling(), synthetic=True)[0] == "theirs"
    assert sampled(logits, sampling(1.0), drafts=[[3, -1], [], [2]])[0] == "theirs"
    assert sampled(logits, sampling(), drafts=[[0, -1], [], [2]]).sampled_token_ids[0].tolist() == [0, 0, -1]


def test_a_budget_that_nobody_has_and_no_processor_are_no_reason() -> None:
    holder = SimpleNamespace(has_tracked_requests=lambda: False)
    how = sampling(thinking_budget_state_holder=holder, logitsprocs=LogitsProcessors())
    assert sampled(torch.zeros(6, 10), how).sampled_token_ids.tolist() == [[0, -1, -1]] * 3


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("place", [0, 1])
def test_tokens_have_the_targets_distribution(wrong: bool, place: int) -> None:
    """Of 10,000 requests at once: the first token, and the one after a draft that is always accepted.

    A drafter that states what it did not draw from is found out in the first.
    """
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(0)
    count, temperature = 10_000, 0.7
    logits = torch.randn(2, 6, generator=generator)
    stated = torch.randn(6, generator=generator).softmax(-1)
    if place:  # the draft is all that the target says
        logits[0], stated = torch.full((6,), -torch.inf), torch.eye(6)[2]
        logits[0, 2] = 0.0
    drawn = stated.flip(-1) if wrong else stated
    drafts = torch.multinomial(drawn, count, replacement=True, generator=generator)
    how = sampling([temperature] * count)
    found = sampled(logits.repeat(count, 1), how, stated.expand(count, 6), drafts[:, None].tolist())
    expected = (logits[place] / temperature).softmax(-1)
    if wrong and place:  # what the target never says is never accepted
        assert set(found.sampled_token_ids[:, 0].tolist()) == {2}
        return
    counts = Counter(found.sampled_token_ids[:, place].tolist())
    assert (chi_square_p_value(counts, dict(enumerate(expected.tolist()))) < REJECT_BELOW) == wrong
