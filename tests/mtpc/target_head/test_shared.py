"""The target's embedding and output head, shared with a drafter."""

from __future__ import annotations

import torch

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
