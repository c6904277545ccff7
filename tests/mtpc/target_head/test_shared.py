"""The target's embedding and output head, shared with a drafter."""

from __future__ import annotations

import torch
from torch.profiler import ProfilerActivity, profile

from mtpc.target_head.shared import SharedHead
from tests.support.tiny_models import VOCAB, make_target


def test_the_head_shares_the_targets_tensors() -> None:
    target = make_target("llama")
    head = SharedHead.of(target)
    assert head.embedding.data_ptr() == target.model.embed_tokens.weight.data_ptr()
    assert head.rows.data_ptr() == target.lm_head.weight.data_ptr()
    few = head.restricted(torch.tensor([3, 1]))
    assert few.embedding.data_ptr() == head.embedding.data_ptr()
    assert few.spread(torch.tensor([0.25, 0.75]))[[3, 1]].tolist() == [0.25, 0.75]
    assert few.spread(torch.zeros(2), -torch.inf).isinf().sum() == VOCAB - 2


def test_states_by_position_are_one_product() -> None:
    """Parallel heads compute states [n, B, d] and transpose them; a batched product would repeat the rows."""
    rows, states = torch.randn(200, 16), torch.randn(3, 32, 16).transpose(0, 1)
    head = SharedHead(rows, rows)
    for given in (states, states[:, :, None], states[0, 0], states[:0]):
        with profile(activities=[ProfilerActivity.CPU]) as profiled:
            logits = head.logits(given)
        assert "aten::bmm" not in {event.name for event in profiled.events()}
        torch.testing.assert_close(logits, given.contiguous() @ rows.T)
