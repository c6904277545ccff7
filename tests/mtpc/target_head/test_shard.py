"""A quantized head, known by its product with states: draft logits are those of its dequantized weight."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from mtpc.errors import MTPCError
from mtpc.target_head.draft_logits import DraftLogits
from mtpc.target_head.rows import SINGLE_RANK, Ranks
from mtpc.target_head.shard import UNITS, QuantizedShard, head_shard, whole_head
from mtpc.target_head.union import UnionLogits
from mtpc.vocabulary.ranking import Ranking, Rankings
from mtpc.vocabulary.vocabularies import DraftVocabularies, VocabularySettings
from tests.mtpc.target_head.ranks import HEAD, SIZE, VOCAB, on_ranks

LANGUAGES = {"english": Ranking(tuple(range(9))), "french": Ranking((20, 3, 17, 5, 12, 11, 0))}
VOCABULARIES = DraftVocabularies(Rankings(VOCAB, LANGUAGES), VocabularySettings(size=7))
NUMBERS = torch.tensor([1, 0, 2, 1, 0])


class Method:
    """The quantization method of an engine: weights in int8 that nobody else reads, and activations as ``rounded``."""

    def __init__(self, weight: Tensor, rounded: Callable[[Tensor], Tensor]) -> None:
        self.scale = weight.abs().amax(1, keepdim=True).float() / 127
        self.codes, self.rounded = (weight.float() / self.scale).round(), rounded
        self.rows_at_once = 0

    def apply(self, layer: nn.Module, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Logits of this rank's shard."""
        assert bias is None and x.dtype == layer.dtype
        self.rows_at_once = max(self.rows_at_once, len(x))
        return (self.rounded(x.float()) @ (self.codes * self.scale).T).to(x.dtype)


def by_token(states: Tensor) -> Tensor:
    """Activations in int8 with a scale for each token."""
    scale = states.abs().amax(1, keepdim=True).clamp_min(1e-9) / 127
    return (states / scale).round() * scale


def with_groups(states: Tensor) -> Tensor:
    """Activations in E4M3 with a scale for each four of them, that may all be zero."""
    grouped = states.unflatten(1, (-1, 4))
    scale = grouped.abs().amax(2, keepdim=True).clamp_min(1e-9) / 448
    return ((grouped / scale).to(torch.float8_e4m3fn).float() * scale).flatten(1)


def fixed(scale: float) -> Callable[[Tensor], Tensor]:
    """Activations in int8 with a scale that does not depend on them."""
    return lambda states: (states / scale).round().clamp(-128, 127) * scale


ROUNDINGS = {"not at all": lambda states: states, "by token": by_token, "by group": with_groups, "fixed": fixed(1 / 32)}


def quantized(
    weight: Tensor, rounded: Callable[[Tensor], Tensor] = by_token, dtype: torch.dtype = torch.float32
) -> tuple[nn.Module, Tensor]:
    """The module of an engine, and the weight that it stands for."""
    layer, method = nn.Module(), Method(weight, rounded)
    layer.register_buffer("packed", torch.zeros(3, dtype=torch.int32))
    layer.embedding_dim, layer.quant_method, layer.dtype = weight.shape[1], method, dtype
    return layer, (method.codes * method.scale).to(dtype)


def shard_of(layer: nn.Module, dtype: torch.dtype = torch.float32) -> QuantizedShard:
    """The shard of the module."""
    shard = head_shard(layer, dtype, layer.embedding_dim)
    assert isinstance(shard, QuantizedShard)
    return shard


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_drafts_are_those_of_the_dequantized_head(rounding: str, dtype: torch.dtype) -> None:
    layer, weight = quantized(HEAD, ROUNDINGS[rounding], dtype)
    states = torch.randn(5, SIZE, dtype=dtype)
    found, expected = DraftLogits(VOCABULARIES, shard_of(layer, dtype)), DraftLogits(VOCABULARIES, weight)
    tolerance = {} if dtype == torch.float32 else {"rtol": 0.02, "atol": 0.05}
    for rows, other in zip(found.rows, expected.rows, strict=True):
        torch.testing.assert_close(rows.share, other.share)
    own = NUMBERS != 2
    torch.testing.assert_close(found(states, NUMBERS)[own], expected(states, NUMBERS)[own], **tolerance)


def test_all_tokens_are_drafted_through_the_layer_itself() -> None:
    layer, weight = quantized(HEAD)
    states, calls = torch.randn(2, SIZE), []
    logits = DraftLogits(VOCABULARIES, shard_of(layer))
    apply = layer.quant_method.apply
    layer.quant_method.apply = lambda *given: calls.append(given) or apply(*given)
    assert torch.equal(logits(states[:1], torch.tensor([2])), apply(layer, states[:1]))
    assert torch.equal(whole_head(shard_of(layer), VOCAB, SINGLE_RANK)(states), apply(layer, states))
    before = len(calls)
    assert not torch.equal(by_token(states) @ weight.T, states @ weight.T)  # else nothing could distinguish the two
    logits(states, torch.tensor([0, 1]))
    assert len(calls) == before


def test_large_heads_are_read_in_parts() -> None:
    weight = torch.randn(VOCAB, 2 * UNITS + 12)
    layer, dequantized = quantized(weight, with_groups)
    rows = DraftLogits(VOCABULARIES, shard_of(layer)).rows
    assert layer.quant_method.rows_at_once == UNITS
    for found, ids in zip(rows, VOCABULARIES.ids, strict=False):
        torch.testing.assert_close(found.share, dequantized[ids])


def test_static_shapes() -> None:
    layer, weight = quantized(HEAD)
    states = torch.randn(5, SIZE)
    found, expected = UnionLogits(VOCABULARIES, shard_of(layer)), UnionLogits(VOCABULARIES, weight)
    for numbers in (None, NUMBERS):
        torch.testing.assert_close(found(states, numbers), expected(states, numbers))


@pytest.mark.parametrize("made", [DraftLogits, UnionLogits])
def test_every_rank_dequantizes_its_own(made: type[DraftLogits]) -> None:
    """Of ranks that have some of the tokens, or none; what fills up the last one's rows is nobody's."""
    states = torch.randn(5, SIZE)
    vocabularies = [VOCABULARIES, DraftVocabularies(Rankings(VOCAB, {"low": Ranking((1, 0, 2))}), VocabularySettings())]
    for each in vocabularies:
        numbers = NUMBERS if len(each.ids) == 3 else None

        def draft(shard: Tensor, ranks: Ranks) -> Tensor:
            layer, _ = quantized(shard)
            return made(each, shard_of(layer), ranks=ranks)(states, numbers)  # noqa: B023

        expected = made(each, shard_of(quantized(HEAD)[0]))(states, numbers)
        for found in on_ranks(draft):
            torch.testing.assert_close(found, expected)


def test_what_does_not_reproduce_its_logits_is_refused() -> None:
    wrong = {
        "a scale that cuts units off": fixed(1 / 512),
        "a scale that rounds them to zero": fixed(4.0),
        "not linear": lambda states: states * states,
        "not a number": lambda states: states / 0,
    }
    for rounded in wrong.values():
        layer, _ = quantized(HEAD, rounded)
        with pytest.raises(MTPCError, match="cannot read the rows of an output head with Method"):
            DraftLogits(VOCABULARIES, shard_of(layer))


def test_a_plain_head_is_read_as_it_is() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        weight = HEAD.to(dtype)
        for size in (None, SIZE):
            found = head_shard(SimpleNamespace(weight=weight, quant_method=Method(HEAD, by_token)), dtype, size)
            assert isinstance(found, Tensor)
            assert torch.equal(found, weight)


def test_what_is_no_head() -> None:
    for weight in (None, HEAD[:, 1:], *(HEAD.to(dtype) for dtype in (torch.float8_e4m3fn, torch.int8, torch.int32))):
        assert head_shard(SimpleNamespace(weight=weight), torch.float32, SIZE) is None
    layer, _ = quantized(HEAD)
    for head, size in ((None, None), (SimpleNamespace(), None), (layer, SIZE + 1)):
        assert head_shard(head, torch.float32, size) is None
