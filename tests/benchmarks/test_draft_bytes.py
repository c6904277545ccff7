"""The bytes that a draft step reads, against the tensors of the layer."""

from __future__ import annotations

import pytest
import torch

from benchmarks.draft_bytes import HEADS, TARGETS, head_rows, main, rows
from mtpc.autoregressive.config import AutoregressiveConfig
from mtpc.autoregressive.layer import DraftLayers
from tests.support.quantized_heads import GROUP, awq, fp8, int8


def test_the_layer_of_mimo() -> None:
    shape = TARGETS["MiMo-7B"]
    config = AutoregressiveConfig(
        layer="qwen2",
        hidden_size=shape.hidden,
        vocab_size=shape.vocab,
        intermediate_size=shape.inner,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        attention_bias=True,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 640000.0},
        max_position_embeddings=32768,
    )
    with torch.device("meta"):
        layer = DraftLayers(config).bfloat16()
    assert shape.layer == sum(tensor.nbytes for tensor in layer.parameters() if tensor.ndim == 2)


def test_a_vocabulary_is_never_more_than_all() -> None:
    whole, together, _ = rows(TARGETS["MiMo-7B"], 100_000, 4)
    assert together[1:] == whole[1:]


def test_rows_of_quantized_heads() -> None:
    """Against tensors as checkpoints have them, of few tokens."""
    weight = torch.randn(64, 256)
    heads = {"FP8 or INT8": (int8, fp8), "4 bits, groups of 128": (awq,)}
    for name, formats in heads.items():
        for quantize in formats:
            head, groups = quantize(weight), 256 // GROUP
            each = sum(tensor.nbytes for tensor in head.tensors.values()) / len(weight)
            if quantize is awq:  # whose groups are smaller here
                each += (256 // 128 - groups) * 2.5
            assert each == HEADS[name](256)


def test_a_quantized_head_gains_less() -> None:
    shape = TARGETS["Qwen3.5-27B"]
    shares = [float(row[-1]) for row in head_rows(shape, 8192, 4)]
    assert shares == sorted(shares)
    assert f"{shares[0]:.2f}" == list(rows(shape, 8192, 4))[-1][-1]


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--size", "1000"])
    printed = capsys.readouterr().out
    assert "| Qwen3.5-27B | one language | 1,000 |" in printed
    assert "| Qwen3.5-27B | FP8 or INT8 |" in printed
