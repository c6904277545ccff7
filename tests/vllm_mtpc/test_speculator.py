"""What Model Runner V2's speculator keeps, without an engine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.v1.worker.gpu.spec_decode.eagle.speculator import EagleSpeculator

from vllm_mtpc import speculator
from vllm_mtpc.speculator import Speculator

SLOTS, DRAFTS, VOCABULARY = 5, 3, 258


@pytest.mark.parametrize("method", ["probabilistic", "greedy"])
@pytest.mark.parametrize(("name", "own"), [("drafter", True), ("hybrid", True), ("fastmtp", False)])
def test_what_is_stated_is_kept_once(
    name: str, own: bool, method: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By vLLM, or where a window drafts in a tensor of our own, with a row for padding: never both."""
    kept: list[torch.Tensor] = []

    def base(self: Any, vllm_config: Any, device: torch.device) -> None:
        self.max_num_reqs, self.vocab_size, self.hidden_size, self.dtype = SLOTS, VOCABULARY, 4, torch.float32
        self.dp_rank, self.draft_logits = 0, None
        if vllm_config.speculative_config.draft_sample_method == "probabilistic":
            self.draft_logits = torch.zeros(SLOTS, DRAFTS, VOCABULARY)
            kept.append(self.draft_logits)

    monkeypatch.setattr(EagleSpeculator, "__init__", base)
    monkeypatch.setattr(speculator, "get_tensor_model_parallel_rank", lambda: 0)
    folder: Path = request.getfixturevalue(name)
    settings = SimpleNamespace(
        num_speculative_tokens=DRAFTS,
        draft_sample_method=method,
        draft_model_config=SimpleNamespace(model=str(folder)),
    )
    config = SimpleNamespace(speculative_config=settings, additional_config={})
    made = Speculator(config, torch.device("cpu"), None)
    assert made.speculative_config.draft_sample_method == method
    assert len(kept) == (method == "probabilistic" and not own)
    assert (made.slot_logits is not None) == (method == "probabilistic" and own)
    assert (made.draft_logits is not None) == (method == "probabilistic")
    if made.slot_logits is not None and made.draft_logits is not None:
        assert made.slot_logits.shape == (SLOTS + 1, DRAFTS, VOCABULARY)
        assert made.draft_logits.data_ptr() == made.slot_logits.data_ptr()
