"""Output heads that vLLM has quantized, on a CPU: rows and logits are those of the dequantized weight."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.layers.quantization import get_quantization_config
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.utils.torch_utils import set_default_torch_dtype

from mtpc.errors import MTPCError
from mtpc.target_head.draft_logits import DraftLogits
from mtpc.target_head.rows import SINGLE_RANK
from mtpc.target_head.shard import MAX_ERROR, QuantizedShard, head_shard
from mtpc.target_head.union import UnionLogits
from mtpc.vocabulary.ranking import Ranking, Rankings
from mtpc.vocabulary.vocabularies import DraftVocabularies, VocabularySettings
from tests.support.quantized_heads import FORMATS, QuantizedHead
from vllm_mtpc.native import head as native_head
from vllm_mtpc.native.head import NativeHead

VOCAB, SIZE = 320, 256
RANKINGS = Rankings(VOCAB, {"low": Ranking(tuple(range(100))), "high": Ranking(tuple(range(319, 200, -1)))})
VOCABULARIES = DraftVocabularies(RANKINGS, VocabularySettings(size=90))
WEIGHT = torch.randn(VOCAB, SIZE, generator=torch.Generator().manual_seed(0)) / 16
STATES = torch.randn(3, SIZE, generator=torch.Generator().manual_seed(1)).bfloat16()


@pytest.fixture(autouse=True)
def one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """No group of processes is needed for one."""
    monkeypatch.setattr("vllm.distributed.parallel_state._TP", SimpleNamespace(rank_in_group=0, world_size=1))
    monkeypatch.setattr(native_head, "head_ranks", lambda: SINGLE_RANK)


def configured() -> Any:
    """Build vLLM's modules as for a target in bfloat16."""
    config = VllmConfig()
    config.model_config = SimpleNamespace(dtype=torch.bfloat16, head_dtype=torch.bfloat16)  # type: ignore[assignment]
    return set_current_vllm_config(config)


def layer_of(head: QuantizedHead) -> ParallelLMHead:
    """The module that vLLM makes of a quantized head in a checkpoint."""
    config = get_quantization_config(head.settings["quant_method"]).from_config(head.settings)
    with configured(), set_default_torch_dtype(torch.bfloat16):
        layer = ParallelLMHead(VOCAB, SIZE, quant_config=config, prefix="lm_head")
        parameters = dict(layer.named_parameters())
        for name in parameters.keys() & head.tensors.keys():  # GPTQ's order of groups is not read where it is plain
            parameters[name].weight_loader(parameters[name], head.tensors[name])
        layer.quant_method.process_weights_after_loading(layer)
    return layer


@pytest.fixture(params=FORMATS)
def made(request: pytest.FixtureRequest) -> tuple[ParallelLMHead, Tensor]:
    """A layer of each format, and the weight that it stands for."""
    if request.param in ("gptq", "awq") and not hasattr(torch.ops._C, "cpu_gemm_wna16"):
        pytest.skip("vLLM's product with 4-bit weights needs AVX-512")
    head = FORMATS[request.param](WEIGHT)
    return layer_of(head), head.weight.bfloat16()


def test_rows_are_those_of_the_dequantized_weight(made: tuple[ParallelLMHead, Tensor]) -> None:
    layer, weight = made
    for kind in (DraftLogits, UnionLogits):
        shard = head_shard(layer, torch.bfloat16)
        assert isinstance(shard, QuantizedShard)
        found, expected = kind(VOCABULARIES, shard), kind(VOCABULARIES, weight)
        for rows, other in zip(found.rows, expected.rows, strict=True):
            torch.testing.assert_close(rows.share, other.share)  # but for the last bit


def test_a_drafter_of_vllms_own(made: tuple[ParallelLMHead, Tensor]) -> None:
    layer, weight = made
    model = nn.Module()
    model.lm_head = layer
    with configured():
        model.logits_processor = LogitsProcessor(VOCAB)
    whole = model.logits_processor(layer, STATES)
    head = NativeHead(model, VOCABULARIES, VOCAB, static=False)
    head.numbers = torch.tensor([1, 2, 0])
    logits: Any = model.logits_processor(layer, STATES)
    torch.testing.assert_close(logits[1], whole[1])  # all tokens, through the layer
    for row, number in ((0, 1), (2, 0)):
        ids = VOCABULARIES.ids[number]
        assert torch.equal(logits[row].isfinite().nonzero()[:, 0], ids)
        torch.testing.assert_close(logits[row, ids], STATES[row] @ weight[ids].T, rtol=0.02, atol=0.02)
        assert (logits[row, ids] - whole[row, ids]).norm() < MAX_ERROR * whole[row, ids].norm()


def test_two_quantized_heads_are_refused() -> None:
    model = nn.Module()
    model.lm_head, model.shared_head = layer_of(FORMATS["gptq"](WEIGHT)), nn.Module()
    model.shared_head.head = layer_of(FORMATS["gptq"](WEIGHT))
    with configured():
        model.logits_processor = LogitsProcessor(VOCAB)
    with pytest.raises(MTPCError, match="needs one output head over the target's 320 tokens"):
        NativeHead(model, VOCABULARIES, VOCAB, static=False)
