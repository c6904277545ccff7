"""Output heads that SGLang has quantized, with plain torch in place of its kernels, which need a GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sglang.srt.layers.logits_processor import LogitsProcessor
from sglang.srt.layers.quantization.compressed_tensors.compressed_tensors import CompressedTensorsConfig
from sglang.srt.layers.quantization.compressed_tensors.schemes import (
    compressed_tensors_w8a8_fp8,
    compressed_tensors_w8a8_int8,
)
from sglang.srt.layers.vocab_parallel_embedding import ParallelLMHead
from torch import Tensor, nn

from mtpc.target_head.draft_logits import DraftLogits
from mtpc.vocabulary.ranking import Ranking, Rankings
from mtpc.vocabulary.vocabularies import DraftVocabularies, VocabularySettings
from sglang_mtpc import native, ranks
from sglang_mtpc.models.draft_layers import DraftLayersModel
from tests.support.quantized_heads import FORMATS, QuantizedHead

pytestmark = pytest.mark.usefixtures("loaded")
VOCAB, SIZE = 320, 256
RANKINGS = Rankings(VOCAB, {"low": Ranking(tuple(range(100))), "high": Ranking(tuple(range(319, 200, -1)))})
VOCABULARIES = DraftVocabularies(RANKINGS, VocabularySettings(size=90))
WEIGHT = torch.randn(VOCAB, SIZE, generator=torch.Generator().manual_seed(0)) / 16
STATES = torch.randn(3, SIZE, generator=torch.Generator().manual_seed(1))


def rounded(states: Tensor, largest: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Activations by token, and their scales."""
    scale = states.abs().amax(1, keepdim=True).clamp_min(1e-9) / largest
    return (states / scale).round().to(dtype) if dtype == torch.int8 else (states / scale).to(dtype), scale


def int8_scaled_mm(a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor, out_dtype: torch.dtype, bias: Any) -> Tensor:
    """What SGLang's kernel computes."""
    return (a.float() @ b.float() * a_scale * b_scale.view(1, -1)).to(out_dtype)


def apply_fp8_linear(input: Tensor, weight: Tensor, weight_scale: Tensor, **_: Any) -> Tensor:  # noqa: A002
    """The same in E4M3."""
    a, scale = rounded(input, 448, torch.float8_e4m3fn)
    return (a.float() @ weight.float() * scale * weight_scale.view(1, -1)).to(input.dtype)


class Marlin(nn.Module):
    """The kernel for four bits, whose layout is its own: the layer has no attribute ``weight``."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.dequantized = weight

    def apply(self, layer: nn.Module, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """What it computes."""
        return x @ self.dequantized.T


@pytest.fixture(params=FORMATS)
def made(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[ParallelLMHead, Tensor]:
    """A layer of each format, and the weight that it stands for."""
    group = SimpleNamespace(all_gather=lambda own: own)
    alone = SimpleNamespace(tp_rank=0, tp_size=1, tp_group=group)
    monkeypatch.setattr(ranks, "get_parallel", lambda: alone)
    monkeypatch.setattr("sglang.srt.layers.vocab_parallel_embedding.get_parallel", lambda: alone)
    monkeypatch.setattr("sglang.srt.layers.vocab_parallel_embedding._resolve_linear_group", lambda name: group)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    monkeypatch.setattr(
        compressed_tensors_w8a8_int8, "per_token_quant_int8", lambda states: rounded(states, 127, torch.int8)
    )
    monkeypatch.setattr(compressed_tensors_w8a8_int8, "int8_scaled_mm", int8_scaled_mm, raising=False)
    monkeypatch.setattr(compressed_tensors_w8a8_fp8, "apply_fp8_linear", apply_fp8_linear)
    head = FORMATS[request.param](WEIGHT)
    if request.param in ("gptq", "awq"):
        layer = ParallelLMHead(VOCAB, SIZE)
        del layer.weight
        layer.qweight = nn.Parameter(head.tensors["qweight"], requires_grad=False)
        layer.quant_method = Marlin(head.weight)
    else:
        layer = layer_of(head)
    return layer, head.weight


def layer_of(head: QuantizedHead) -> ParallelLMHead:
    """The module that SGLang makes of a quantized head in a checkpoint."""
    config = CompressedTensorsConfig.from_config(head.settings)
    layer = ParallelLMHead(VOCAB, SIZE, quant_config=config, prefix="lm_head")
    parameters = dict(layer.named_parameters())
    for name, tensor in head.tensors.items():
        parameters[name].weight_loader(parameters[name], tensor)
    layer.quant_method.process_weights_after_loading(layer)
    return layer


def test_draft_layers_of_this_project(made: tuple[ParallelLMHead, Tensor]) -> None:
    layer, weight = made
    model: Any = DraftLayersModel.__new__(DraftLayersModel)
    nn.Module.__init__(model)
    model.model = nn.Module()
    model.model.own, model.model.dtype = None, torch.float32
    model.drafter = SimpleNamespace(hidden_size=SIZE, vocab_size=VOCAB)
    target = SimpleNamespace(model=SimpleNamespace(embed_tokens=nn.Embedding(1, 1)), lm_head=layer)
    model.share(target, VOCABULARIES, None)
    expected = DraftLogits(VOCABULARIES, weight)
    for found, rows in zip(model.output.draft_logits.rows, expected.rows, strict=True):
        torch.testing.assert_close(found.share, rows.share)
    whole = layer.quant_method.apply(layer, STATES, None)
    assert torch.equal(model.output.draft_logits(STATES, torch.full((3,), 2)), whole)
    model.share(target, None, None)
    assert torch.equal(model.head(3).logits(STATES), whole)


def test_a_drafter_of_sglangs_own(made: tuple[ParallelLMHead, Tensor]) -> None:
    """SGLang shares the weight with a module that knows nothing of its scales."""
    layer, weight = made
    model = nn.Module()
    model.lm_head = ParallelLMHead(VOCAB, SIZE)
    del model.lm_head.weight
    if getattr(layer, "weight", None) is None:
        model.lm_head = layer
    else:
        model.lm_head.weight = layer.weight
    model.logits_processor = LogitsProcessor.__new__(LogitsProcessor)
    nn.Module.__init__(model.logits_processor)
    model.logits_processor.logit_scale = model.logits_processor.final_logit_softcapping = None
    head = native.restrict(model, VOCABULARIES, VOCAB, layer, torch.float32)
    head.numbers = torch.tensor([1, 2, 0])
    logits = model.logits_processor._get_logits(STATES, model.lm_head, None)
    expected = DraftLogits(VOCABULARIES, weight)(STATES, head.numbers)
    for row, number in ((0, 1), (2, 0)):
        ids = VOCABULARIES.ids[number]
        assert torch.equal((logits[row] > -1e29).nonzero()[:, 0], ids)
        torch.testing.assert_close(logits[row, ids], expected[row, ids])
    torch.testing.assert_close(logits[1], layer.quant_method.apply(layer, STATES, None)[1])
