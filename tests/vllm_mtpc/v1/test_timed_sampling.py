"""Sampling and rejection sampling for nobody, to be timed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from vllm.v1.sample.logits_processor import LogitsProcessors
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.sampler import Sampler
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

from vllm_mtpc.v1.timed_sampling import sampling_of

VOCABULARY = 11


def test_tokens_are_drawn_and_drafts_verified() -> None:
    calls: list[tuple[str, torch.Tensor]] = []
    none = torch.zeros(0)
    empty = SamplingMetadata(
        temperature=None, all_greedy=True, all_random=False, top_p=None, top_k=None, generators={},
        max_num_logprobs=None, no_penalties=True, prompt_token_ids=None, frequency_penalties=none,
        presence_penalties=none, repetition_penalties=none, output_token_ids=[], allowed_token_ids_mask=None,
        bad_words_token_ids={}, logitsprocs=LogitsProcessors(),
    )  # fmt: skip
    sampler = Sampler()
    sampler.register_forward_hook(lambda _, given, made: calls.append(("sampled", made.sampled_token_ids)))

    def rejection(drafts: SpecDecodeMetadata, probs: torch.Tensor, logits: torch.Tensor, metadata: Any) -> None:
        assert metadata.all_random and metadata.temperature.shape == (1,)
        torch.testing.assert_close(probs.sum(1), torch.ones(len(drafts.draft_token_ids)))
        calls.append(("verified", logits))

    runner = SimpleNamespace(
        device=torch.device("cpu"),
        model_config=SimpleNamespace(get_vocab_size=lambda: VOCABULARY, dtype=torch.bfloat16),
        input_batch=SimpleNamespace(sampling_metadata=empty),
        sampler=sampler,
        rejection_sampler=rejection,
    )
    timed = sampling_of(runner, 8, None)
    timed.sample(8)
    (kind, tokens), *_ = calls
    assert kind == "sampled" and tokens.shape == (8, 1)
    assert len(set(tokens.flatten().tolist())) > 1  # drawn, not the likeliest of the same logits
    calls.clear()
    timed.verify(4)
    assert [(kind, logits.shape) for kind, logits in calls] == [("verified", (4, VOCABULARY))]  # three drafts, and one
    assert timed.draft is None
