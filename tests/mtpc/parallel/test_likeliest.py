"""The most probable token at each place of a text, against the probabilities of all of them."""

from __future__ import annotations

import pytest
import torch

from mtpc.draft import DraftContext
from mtpc.parallel.head_inputs import with_head_inputs
from mtpc.target_head.shared import SharedHead
from tests.support.tiny_methods import EXAMPLES, VOCAB, tiny_target
from tests.support.tiny_models import SIZE

NAMES = [
    "mtpc-btree",
    "mtpc-hmm-token-input",
    "mtpc-hmm-target",
    "mtpc-cp-target-token-input",
    "gumiho-ff",
    "gumiho-hmm",
    "medusa",
]


@pytest.mark.parametrize("restricted", [False, True])
@pytest.mark.parametrize("name", NAMES)
@torch.inference_mode()
def test_it_has_the_largest_probability_after_the_text_before_it(name: str, restricted: bool) -> None:
    drafter, head, places = EXAMPLES[name](), SharedHead.of(tiny_target()), 2
    head = head.restricted(torch.tensor([0, 2, 3])) if restricted else head
    assert drafter.parallel is not None
    generator, before = torch.Generator().manual_seed(4), 3 if drafter.parallel.reads_autoregressive else 1
    known = DraftContext(
        torch.randn(6, before, SIZE, generator=generator), torch.randint(VOCAB, (6, before), generator=generator)
    )
    if drafter.parallel.reads_head:
        known = with_head_inputs(known, drafter.autoregressive, head)
    text = torch.randint(VOCAB, (6, places), generator=generator)
    found = drafter.parallel.most_probable_tokens(known, text)
    for place in range(places):
        each = [text.index_fill(1, torch.tensor([place]), token)[:, : place + 1] for token in range(VOCAB)]
        log_q = torch.stack([drafter.parallel.log_probs(known, one, 1.0)[:, place] for one in each], 1)
        assert torch.equal(found[:, place], log_q.argmax(1))
    assert len(found.unique()) > 1
