"""vLLM's own rejection sampler, wrapped: drafts with lazily computed distributions, in batches as vLLM makes them."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from vllm.v1.sample import rejection_sampler
from vllm.v1.sample.rejection_sampler import PLACEHOLDER_TOKEN_ID

from mtpc.lab.statistics.chi_square import REJECT_BELOW, chi_square
from mtpc.verify import PADDING
from vllm_mtpc.v1 import lazy_verification
from vllm_mtpc.v1.lazy_verification import LAST_DRAFT, lazy_rows

V, LONGEST = 7, 2


class Known:
    """Distributions [B, K, V] and their values at the draft tokens."""

    def __init__(self, probs: Tensor, tokens: Tensor) -> None:
        self.probs, self.stated = probs, probs.gather(2, tokens[..., None])[..., 0]

    def of(self, rows: Tensor, positions: Tensor, tokens: Tensor) -> Tensor:
        return self.probs[rows, positions, tokens]


@pytest.fixture
def sampler(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What is wrapped, with vLLM's noise; its own rule is not to be called."""

    def original(*given: Any, **named: Any) -> Any:
        return "vLLM's"

    module = SimpleNamespace(rejection_sample=original, generate_uniform_probs=rejection_sampler.generate_uniform_probs)
    lazy_verification.install(module)
    monkeypatch.setattr(LAST_DRAFT, "lazy", None)
    return module


def metadata(temperatures: list[float], generators: dict[int, torch.Generator]) -> Any:
    """What is read of vLLM's ``SamplingMetadata``."""
    greedy = [temperature == 0 for temperature in temperatures]
    return SimpleNamespace(
        temperature=None if all(greedy) else torch.tensor(temperatures),
        all_greedy=all(greedy),
        all_random=not any(greedy),
        generators=generators,
    )


def verified(
    sampler: Any, drafts: Tensor, counts: list[int], order: list[int], logits: Tensor, temperatures: list[float],
    generators: dict[int, torch.Generator] | None = None,
) -> Tensor:  # fmt: skip
    """Output tokens of requests, which drafted in this order; each has a bonus token V - 1."""
    assert LAST_DRAFT.lazy is not None
    rows = lazy_rows(LAST_DRAFT.lazy.stated, range(len(drafts)), len(drafts))
    carried = torch.cat([rows[row, :count] for row, count in zip(order, counts, strict=True)])
    tokens = torch.cat([drafts[row, :count] for row, count in zip(order, counts, strict=True)]).int()
    bonus = torch.full((len(order), 1), V - 1, dtype=torch.int32)
    ends = torch.tensor(counts).cumsum(0).int()
    return sampler.rejection_sample(  # type: ignore[no-any-return]
        tokens, counts, max(counts), ends, carried, logits.expand(len(tokens), V), bonus,
        metadata(temperatures, generators or {}), synthetic_mode=False,
    )  # fmt: skip


def test_dense_distributions_are_vllms(sampler: Any) -> None:
    for probs in (None, torch.full((1, V), 1 / V)):
        given = torch.tensor([1]), [1], 1, torch.tensor([1]), probs, torch.zeros(1, V), torch.tensor([[0]])
        assert sampler.rejection_sample(*given, metadata([1.0], {})) == "vLLM's"
    assert PADDING == PLACEHOLDER_TOKEN_ID


def test_greedy_requests_alone_are_vllms(sampler: Any) -> None:
    """Drafted lazily, in a batch with sampled requests that have ended since."""
    drafts = torch.tensor([[1, 2], [2, 2]])
    LAST_DRAFT.lazy = Known(torch.nn.functional.one_hot(drafts, V).double(), drafts)
    assert verified(sampler, drafts, [2, 1], [0, 1], torch.zeros(V), [0.0, 0.0]) == "vLLM's"


def test_what_the_runner_carries() -> None:
    carried = lazy_rows(torch.tensor([[0.5, 1.0], [0.25, 0.125]], dtype=torch.float64), [0, 2], 3)
    assert carried.tolist() == [[[0, 0.5], [0, 1.0]], [[0, 0], [0, 0]], [[1, 0.25], [1, 0.125]]]


def test_first_tokens_are_the_targets(sampler: Any) -> None:
    """In another order than drafted, some without drafts and some with one; as a control another q is stated."""
    generator, rows = torch.Generator().manual_seed(0), 6000
    torch.manual_seed(1)
    logits = torch.tensor([0.1, 1.4, 1.2, -0.3, 0.9, 0.0, -torch.inf])
    probs = torch.rand(rows, LONGEST, V, generator=generator, dtype=torch.float64) ** 4
    probs /= probs.sum(2, keepdim=True)
    drafts = torch.multinomial(probs.flatten(0, 1), 1, generator=generator).view(rows, LONGEST)
    order = torch.randperm(rows, generator=generator).tolist()
    counts = [(row % 3 + place % 2) % 3 for place, row in enumerate(order)]
    expected = dict(enumerate(logits.softmax(0).tolist()))
    for stated, honest in ((probs, True), (probs.roll(1, 0), False)):
        LAST_DRAFT.lazy = Known(stated, drafts)
        output = verified(sampler, drafts, counts, order, logits, [1.0] * rows)
        assert output.shape == (rows, LONGEST + 1) and output.dtype == torch.int32
        lengths = (output != PADDING).sum(1)
        for row, count in enumerate(counts[:200]):
            emitted = output[row, : lengths[row]].tolist()
            assert len(emitted) <= count + 1 and (emitted[-1] == V - 1) == (len(emitted) == count + 1)
            assert emitted[:-1] == drafts[order[row], : len(emitted) - 1].tolist()
        first = Counter(output[torch.tensor(counts) > 0, 0].tolist())
        value = chi_square(first, expected).p
        assert value > 1e-4 if honest else value < REJECT_BELOW


def test_rejected_drafts_become_tokens_that_their_request_drafts_too_rarely(sampler: Any) -> None:
    """Each request drafts one of two tokens, more often than the target emits them, in another order than verified."""
    rows = 300
    drafts = torch.arange(rows)[:, None] % (V - 1)
    drafted = torch.nn.functional.one_hot(torch.stack([drafts, drafts + 1]), V).sum(0)
    LAST_DRAFT.lazy = Known(drafted.double() / 2, drafts)
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(0))
    first, second = verified(sampler, drafts, [1] * rows, order.tolist(), torch.zeros(V), [1.0] * rows).long().T
    rejected = second == PADDING
    assert torch.equal(drafted[order, 0].gather(1, first[:, None])[:, 0] == 0, rejected)
    assert rejected.any() and not rejected.all()


def test_greedy_requests_and_seeds(sampler: Any) -> None:
    logits = torch.tensor([0.1, 1.4, 1.2, -0.3, 0.9, 0.0, 0.2])
    drafts = torch.tensor([[1, 2], [2, 2], [3, 3], [3, 3]])
    certain = torch.nn.functional.one_hot(drafts, V).double()
    certain[2:] = 1 / V
    LAST_DRAFT.lazy = Known(certain, drafts)

    def sample(seed: int) -> list[list[int]]:
        generators = {row: torch.Generator().manual_seed(seed) for row in (2, 3)}
        return verified(sampler, drafts, [2] * 4, [0, 1, 2, 3], logits, [0.0, 0.0, 1.0, 1.0], generators).tolist()

    found = [sample(seed) for seed in range(30)]
    assert all(rows[:2] == [[1, 1, -1], [1, -1, -1]] for rows in found)
    assert all(rows[2] == rows[3] for rows in found) and len({tuple(rows[2]) for rows in found}) > 5
    assert found == [sample(seed) for seed in range(30)]
