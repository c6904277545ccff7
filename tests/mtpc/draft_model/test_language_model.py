"""Requests of different lengths in one batch, rolled back and reused, against a forward pass of each whole request."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional
from transformers import (
    BartConfig,
    BloomConfig,
    DeepseekV3Config,
    GPT2Config,
    MambaConfig,
    MistralConfig,
    Phi3Config,
    PreTrainedConfig,
    PreTrainedModel,
)

from mtpc.draft_model import language_model
from mtpc.draft_model.language_model import LanguageModel
from mtpc.errors import MTPCError
from tests.support.tiny_models import KINDS, VOCAB, make_target

CPU = torch.device("cpu")
SLOTS, CONTEXT = 4, 40


def load(folder: Path, slots: int = SLOTS, context: int = CONTEXT, dtype: torch.dtype = torch.float32) -> LanguageModel:
    """A language model on the CPU."""
    return LanguageModel(folder, CPU, dtype, slots, context)


def expected(model: PreTrainedModel, texts: list[list[int]]) -> Tensor:
    """The logits after each text, by a forward pass of it alone: [B, V]."""
    return torch.stack([model(torch.tensor([text]), use_cache=False).logits[0, -1] for text in texts])


def poison(model: LanguageModel, texts: dict[int, list[int]]) -> None:
    """Write NaN wherever nothing is read: behind the requests' texts, and in free slots."""
    for slot in range(SLOTS):
        end = len(texts.get(slot, ()))
        model.cache.keys[:, slot, :, end:] = torch.nan
        model.cache.values[:, slot, :, end:] = torch.nan


@pytest.mark.parametrize("kind", KINDS)
def test_any_schedule_of_reads_equals_whole_forward_passes(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = make_target(kind)
    target.save_pretrained(tmp_path)
    model = load(tmp_path)
    for seed in range(12):
        draw = random.Random(seed)
        monkeypatch.setattr(language_model, "CHUNK", draw.choice([1, 3, 8, 512]))
        texts: dict[int, list[int]] = {}
        for _ in range(12):
            slots = draw.sample(range(SLOTS), draw.randint(1, SLOTS))  # the others are left out of this step
            tokens, starts = [], []
            for slot in slots:
                if draw.random() < 0.1:
                    texts.pop(slot, None)  # another request's turn
                text = texts.setdefault(slot, [])
                start = draw.choice([len(text), draw.randint(0, len(text))])  # continues, or is rolled back
                start = min(start, CONTEXT - 1)
                longest = draw.choice([1, 1, 4, CONTEXT])
                new = [draw.randrange(VOCAB) for _ in range(draw.randint(1, min(longest, CONTEXT - start)))]
                text[start:] = new
                tokens.append(new)
                starts.append(start)
            logits = model.read(slots, tokens, starts)
            assert logits.dtype == torch.float32
            torch.testing.assert_close(logits, expected(target, [texts[slot] for slot in slots]), atol=2e-5, rtol=1e-5)
            poison(model, texts)


def test_logits_after_every_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = make_target("llama")
    target.save_pretrained(tmp_path)
    model, texts = load(tmp_path), [[3, 5, 7, 9, 4], [8, 1]]
    model.read([2], [[3, 5]], [0])
    expected_logits = torch.cat([target(torch.tensor([text]), use_cache=False).logits[0] for text in texts])[2:]
    for chunk in (1, 2, 512):
        monkeypatch.setattr(language_model, "CHUNK", chunk)
        logits = model.read([2, 0], [texts[0][2:], texts[1]], [2, 0], every=True)
        torch.testing.assert_close(logits, expected_logits, atol=2e-5, rtol=1e-5)


def test_a_model_with_learned_positions_is_read_too(tmp_path: Path) -> None:
    target = save(GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=16, vocab_size=VOCAB), tmp_path)
    model = load(tmp_path)
    assert model.context == 16  # all positions that it has
    model.read([1, 3], [[4, 5, 6], [7]], [0, 0])
    texts = [[4, 5, 9, 8], [7, 1]]
    torch.testing.assert_close(model.read([1, 3], [[9, 8], [1]], [2, 1]), expected(target, texts), atol=2e-5, rtol=1e-5)


def test_bfloat16_by_one_token_or_many_and_memory(tmp_path: Path) -> None:
    target = make_target("qwen2")
    target.save_pretrained(tmp_path)
    model = load(tmp_path, dtype=torch.bfloat16)
    text = list(range(1, 9))
    near = expected(target, [text])
    for start in (0, len(text) - 1):  # one token has other kernels
        assert (model.read([2], [text[start:]], [start]) - near).abs().max() < 0.05 * near.abs().max()
        assert torch.backends.mkldnn.enabled
    weights = sum(parameter.numel() for parameter in target.parameters())
    cache = 2 * 2 * SLOTS * 2 * CONTEXT * 4  # keys and values, layers, slots, key heads, positions, head size
    rotary = sum(buffer.nbytes for buffer in model._model.buffers())
    assert model.memory() == 2 * (weights + cache) + rotary and rotary < 100


@pytest.mark.parametrize("slow", [False, True])
def test_only_a_cpu_without_bfloat16_products_reads_many_tokens_in_float32(
    slow: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, text = make_target("qwen2"), list(range(1, 9))  # with biases
    target.save_pretrained(tmp_path)
    monkeypatch.setattr(language_model, "is_slow_in_bfloat16", lambda: slow)
    model, near, read, linear = load(tmp_path, dtype=torch.bfloat16), expected(target, [text]), [], functional.linear

    def recorded(x: Tensor, *others: Any) -> Tensor:
        read.append(x.dtype)
        return linear(x, *others)

    monkeypatch.setattr(functional, "linear", recorded)
    assert (model.read([2], [text], [0]) - near).abs().max() < 0.05 * near.abs().max()
    assert (torch.float32 in read) == slow
    read.clear()
    model.read([2], [text[-1:]], [len(text) - 1])
    assert set(read) == {torch.bfloat16}


def save(config: PreTrainedConfig, folder: Path) -> PreTrainedModel:
    """A random model of any kind in a folder."""
    from transformers import AutoModelForCausalLM

    model: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder)
    return model.eval()


SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
}
REFUSED: list[tuple[PreTrainedConfig, str]] = [
    (MistralConfig(**SIZES, sliding_window=8), "'mistral' has layers of sliding-window or linear attention; a draft"),
    (MambaConfig(vocab_size=VOCAB, hidden_size=16, num_hidden_layers=1), "'mamba' has layers of sliding-window or"),
    (BloomConfig(vocab_size=VOCAB, hidden_size=16, n_layer=1, n_head=2), "'bloom' has an attention of its own"),
    (
        BartConfig(vocab_size=VOCAB, d_model=16, encoder_layers=1, decoder_layers=1),
        "'bart' has an encoder; a draft model must be a decoder whose layers all have full attention",
    ),
    (
        Phi3Config(
            **SIZES,
            original_max_position_embeddings=8,
            rope_parameters={
                "rope_type": "longrope",
                "rope_theta": 1e4,
                "short_factor": [1.0] * 4,
                "long_factor": [2.0] * 4,
                "original_max_position_embeddings": 8,
            },
        ),
        "'phi3' has rotary frequencies that change with a request's length",
    ),
]


def test_models_that_a_slot_cannot_hold_are_refused(tmp_path: Path) -> None:
    for config, sentence in REFUSED:
        config.save_pretrained(tmp_path)
        with pytest.raises(MTPCError, match=sentence):
            load(tmp_path)


def test_keys_of_other_sizes_than_stated_are_refused(tmp_path: Path) -> None:
    save(DeepseekV3Config(**SIZES, first_k_dense_replace=1), tmp_path)  # keys of 192 numbers, values of 128
    with pytest.raises(MTPCError, match="cannot be a draft model: shape mismatch"):
        load(tmp_path)


def test_a_cache_that_cannot_fit_is_refused_before_it_is_made(tmp_path: Path) -> None:
    make_target("llama").save_pretrained(tmp_path)
    with pytest.raises(MTPCError, match=r"with 1000000000 slots of 128 tokens takes .* GiB; convert it again"):
        load(tmp_path, slots=10**9, context=10**9)


def test_folders_that_hold_no_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MTPCError, match=r"missing cannot be loaded as a draft model: .*; expected the folder of a"):
        load(tmp_path / "missing")
    make_target("llama").save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    tensors = load_file(weights)
    del tensors["model.norm.weight"]
    save_file(tensors, weights, {"format": "pt"})
    with pytest.raises(MTPCError, match=r"it does not hold the tensor 'model.norm.weight'; expected"):
        load(tmp_path)
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(MTPCError, match="cannot be loaded as a draft model"):
        load(tmp_path)
