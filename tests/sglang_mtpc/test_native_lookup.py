"""Prompt lookup with SGLang's own drafters: the first draft and SGLang's loop are held against the plain mixture."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from mtpc.draft import Mode
from mtpc.draft_length.cost import StepCost
from mtpc.prompt_lookup.mixture import Copying
from sglang_mtpc.native_lookup import NativePromptLookup
from tests.sglang_mtpc.stand_ins import batch_of

ROWS, DRAFTS, REQUESTS = 400, 3, 500


class Request:
    """SGLang's; every other one repeats itself."""

    def __init__(self, row: int) -> None:
        self.origin_input_ids, self.output_ids = [1, 2, 3, 4, *([] if row % 2 else [1, 2])], list[int]()
        self.sampling_params = SimpleNamespace(custom_params=None)


class Runner:
    """SGLang's of a draft model."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits

    def forward(self, forward_batch: Any, *, option: str) -> Any:
        assert option == "passed on"
        return SimpleNamespace(logits_output=SimpleNamespace(next_token_logits=self.logits.clone()))


@pytest.mark.parametrize("mode", ["greedy", "mixed", "sampled"])
def test_every_draft_token_comes_from_the_mixture(mode: Mode, tmp_path: Path) -> None:
    """Two steps, of which the second has fewer requests."""
    lookup = NativePromptLookup(tmp_path, DRAFTS, DRAFTS, None, REQUESTS, 7, torch.device("cpu"), 99)
    for rows in (ROWS, ROWS // 2):
        batch, greedy = batch_of(rows, mode)
        batch.reqs = [Request(row) for row in range(rows)]
        own = batch.spec_info.draft_probs.clone()
        lookup.draw_first(batch)
        plain = Copying.begin(lookup.lengths.copied(DRAFTS))
        assert plain.weight.tolist()[1::2] == [0.0] * (rows // 2)
        assert min(plain.weight.tolist()[::2]) > 0.1
        given, expected = batch.spec_info, plain.mixed(own)
        assert torch.allclose(given.draft_probs, expected)
        assert torch.equal(given.topk_p, given.draft_probs.gather(1, given.topk_index))
        assert torch.equal(given.topk_index[greedy, 0], expected[greedy].argmax(1))
        token, logits = given.topk_index[:, 0], own.log()
        passes = SimpleNamespace(batch_size=rows, sampling_info=batch.sampling_info, input_ids=token)
        runner = Runner(logits)
        with lookup.mixing(passes).in_loop(runner):
            for _ in range(DRAFTS - 1):
                plain = plain.drafted(token, plain.drafter_probability(own))
                mixed = runner.forward(passes, option="passed on").logits_output.next_token_logits
                stated = (mixed / batch.sampling_info.temperatures).softmax(-1)
                assert torch.allclose(stated, plain.mixed(own), atol=1e-6)
                passes.input_ids = token = plain.mixed(own).argmax(1)
        assert torch.equal(runner.forward(passes, option="passed on").logits_output.next_token_logits, logits)


def test_a_draft_is_longer_where_copies_give_a_speedup(tmp_path: Path) -> None:
    """One request that repeats itself; another one that does not makes the same tokens too dear."""
    cost = StepCost(plain=((1, 1.0),), verifying=((1, 1.0), (9, 1.2), (20, 3.0)), drafting=((1, 0.0),))
    lookup = NativePromptLookup(tmp_path, DRAFTS, 8, cost, REQUESTS, 7, torch.device("cpu"), 99)
    for kinds, longer in (("r", True), ("n", False), ("rn", False)):
        batch, _ = batch_of(len(kinds), "greedy")
        batch.reqs = [Request(int(kind == "n")) for kind in kinds]
        for request in batch.reqs:
            request.origin_input_ids = request.origin_input_ids * (1 if kinds == "n" else 2)
        lookup.draw_first(batch)
        assert lookup.is_longer is longer, kinds
