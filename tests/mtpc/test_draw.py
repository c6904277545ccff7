"""Draws from a large vocabulary follow the stated distribution to its rarest token."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mtpc import draw as drawing
from mtpc.draw import at_temperature, draw, draw_mixed, draw_tokens
from mtpc.parallel.compiled import has_compiler
from tests.gpu.exactness import law_error


def test_every_token_of_a_large_vocabulary_is_drawn_in_its_own_interval() -> None:
    generator = torch.Generator().manual_seed(0)
    probs = (3.0 * torch.randn(49152, generator=generator)).softmax(-1)
    assert probs.dtype == torch.float32
    ends = probs.double().cumsum(-1)
    middles = (ends - probs.double() / 2) / ends[-1]
    asked = torch.randint(49152, (512,), generator=generator)
    assert torch.equal(draw(probs.expand(512, -1), middles[asked]), asked)


def test_the_law_of_a_draw_is_what_is_stated() -> None:
    """At 152,000 tokens."""
    generator = torch.Generator().manual_seed(1)
    probs = (3.0 * torch.randn(152_000, generator=generator)).softmax(-1)
    assert law_error(probs) < 1e-9


@pytest.mark.skipif(not has_compiler(), reason="torch compiles with a C++ compiler: there is none")
def test_compiled_draws_are_the_same() -> None:
    """Rows of more numbers than a vector register holds, of one request and of several."""
    generator = torch.Generator().manual_seed(4)
    probs = torch.randn(8, 258, generator=generator).softmax(-1)
    uniforms = torch.rand(8, dtype=torch.float64, generator=generator)
    compiled = torch.compile(draw, fullgraph=True)
    drawn = draw(probs, uniforms)
    assert len(drawn.unique()) > 4
    for rows in (1, 8):
        assert torch.equal(compiled(probs[:rows], uniforms[:rows]), drawn[:rows])


def test_sums_that_do_not_rise_lead_to_no_impossible_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum made in parallel may be larger where nothing was added."""
    sums = torch.tensor([0.5, 0.5 + 2**-50, 1.0, 1.0], dtype=torch.float64)
    monkeypatch.setattr(torch.Tensor, "cumsum", lambda *_, **__: sums)
    probs = torch.tensor([0.5, 0.0, 0.5, 0.0])
    assert draw(probs, torch.tensor(0.5, dtype=torch.float64)).item() == 0
    assert draw(probs, torch.tensor(0.7, dtype=torch.float64)).item() == 2


@pytest.fixture
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of more than 8 numbers are drawn in two steps."""
    monkeypatch.setattr(drawing, "SHORT_ROW", 8)
    monkeypatch.setattr(drawing, "BLOCK", 8)


def rows_of(size: int, dtype: torch.dtype) -> torch.Tensor:
    """Weights [200, size], of which most blocks have some that are zero, and some only such."""
    generator = torch.Generator().manual_seed(size)
    weights = (4.0 * torch.randn(200, size, generator=generator, dtype=torch.float64)).exp()
    weights *= torch.rand(200, size, generator=generator) < torch.rand(200, 1, generator=generator)
    blocks = torch.rand(200, size // 8 + 1, generator=generator) < 0.5
    weights *= blocks.repeat_interleave(8, 1)[:, :size]
    weights[:, size // 2] += weights.sum(1) == 0
    return weights.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [9, 16, 61, 256])
def test_a_draw_in_two_steps_is_that_in_one(
    size: int, dtype: torch.dtype, short_blocks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = rows_of(size, dtype)
    uniforms = torch.rand(50, 200, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    uniforms[0], uniforms[-1] = 0.0, 1.0 - 2.0**-53
    found = draw(weights.expand(50, -1, -1), uniforms)
    assert (weights.gather(1, found[-1:].T) > 0).all()  # where rounding may choose
    monkeypatch.setattr(drawing, "SHORT_ROW", size)
    assert torch.equal(found[:-1], draw(weights.expand(49, -1, -1), uniforms[:-1]))


def test_no_rounding_of_sums_leads_to_an_impossible_token(short_blocks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor to one beyond the vocabulary; sums are off by so much that many uniforms meet it."""
    honest, weights, generator = torch.Tensor.cumsum, rows_of(61, torch.float32), torch.Generator().manual_seed(2)

    def rounded(self: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        sums = honest(self, *args, **options)
        return sums * (1 + 0.02 * torch.randn(sums.shape, generator=generator, dtype=sums.dtype))

    monkeypatch.setattr(torch.Tensor, "cumsum", rounded)
    found = draw(weights.expand(50, -1, -1), torch.rand(50, 200, generator=generator, dtype=torch.float64))
    assert (weights.expand(50, -1, -1).gather(-1, found[..., None]) > 0).all()


def test_long_rows_of_no_numbers_and_of_greedy_requests(short_blocks: None) -> None:
    probs = rows_of(61, torch.float32)[:3]
    probs[2] = torch.nan
    found = draw(probs, torch.full((3,), 0.9).double(), torch.tensor([0.0, 1.0, 1.0]))
    assert found[0] == probs[0].argmax()
    assert (found < 61).all()


def test_rows_of_greedy_requests_and_of_no_numbers() -> None:
    probs = torch.tensor([[0.2, 0.5, 0.3], [0.2, 0.5, 0.3], [torch.nan] * 3])
    uniforms, temperature = torch.tensor([0.9, 0.9, 0.9]).double(), torch.tensor([0.0, 1.0, 1.0])
    assert draw(probs, uniforms, temperature)[:2].tolist() == [1, 2]
    assert 0 <= draw(probs, uniforms, temperature)[2] < 3


def test_what_is_stated_sums_to_one() -> None:
    logits = 3.0 * torch.randn(4, 152_000, generator=torch.Generator().manual_seed(1))
    for temperature in (None, torch.tensor([0.0, 0.5, 1.0, 2.0])):
        totals = at_temperature(logits, temperature).double().sum(-1)
        torch.testing.assert_close(totals, torch.ones_like(totals), atol=2e-7, rtol=0)


def test_a_column_with_a_weight_of_its_own() -> None:
    """What is drawn from is (1 - w) q + w 1[column], also for a column that q does not know."""
    generator = torch.Generator().manual_seed(2)
    logits, temperature = torch.randn(4, 5, generator=generator), torch.tensor([1.0, 0.5, 0.0, 2.0])
    columns, weights = torch.tensor([3, -1, 2, -1]), torch.tensor([0.25, 0.5, 0.75, 0.0])
    uniforms = torch.rand(4, generator=generator).double()
    own = at_temperature(logits, temperature)
    expected = torch.cat([(1 - weights)[:, None] * own, torch.zeros(4, 1)], 1)
    for row, column in enumerate(columns.tolist()):
        expected[row, column] += weights[row]
    mixed = draw_mixed(logits, temperature, uniforms, columns, weights)
    torch.testing.assert_close(mixed.probs, expected)
    assert torch.equal(mixed.columns, draw(mixed.probs, uniforms, temperature))
    torch.testing.assert_close(
        mixed.drafter_probs, torch.stack([own[0, 3], torch.tensor(0.0), own[2, 2], torch.tensor(0.0)])
    )


def test_a_weight_of_nothing_changes_no_draw() -> None:
    """Bit for bit: a request with a seed draws the same whether others copy or not."""
    generator = torch.Generator().manual_seed(3)
    logits, uniforms = torch.randn(64, 4000, generator=generator), torch.rand(64, generator=generator).double()
    temperature, columns = torch.full((64,), 0.8), torch.randint(-1, 4000, (64,), generator=generator)
    tokens, probs = draw_tokens(logits, temperature, uniforms)
    mixed = draw_mixed(logits, temperature, uniforms, columns, torch.zeros(64))
    assert torch.equal(mixed.columns, tokens)
    assert torch.equal(mixed.probs[:, :-1], probs)
    assert not mixed.probs[:, -1].any()
