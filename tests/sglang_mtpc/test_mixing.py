"""What SGLang's loop states and draws with copying is the mixture, token by token, held against the plain one."""

from __future__ import annotations

import pytest
import torch
from sglang.srt.speculative.spec_utils import sample_draft_proposal

from mtpc.prompt_lookup.mixture import Copied, Copying
from sglang_mtpc.mixing import Mixing

ROWS, DRAFTS, VOCAB = 6, 4, 5


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("seed", range(3))
def test_the_loop_states_the_mixture(temperature: float, seed: int) -> None:
    torch.manual_seed(seed)
    chances = 0.9 * torch.rand(ROWS, DRAFTS) * (torch.arange(ROWS) > 1)[:, None]  # two rows have nothing to copy
    copied = Copied(torch.randint(VOCAB, (ROWS, DRAFTS)), chances)
    temperatures, top_ks = torch.full((ROWS, 1), temperature), torch.full((ROWS,), 1 << 30)
    plain = Copying.begin(copied)
    mixing = Mixing(plain, temperatures)
    token = torch.empty(0)
    for place in range(DRAFTS):
        logits = torch.randn(ROWS, VOCAB)
        logits[:, seed] = -torch.inf  # cannot be drafted, only copied
        own = (logits / temperature).softmax(-1)
        if place == 0:
            stated = mixing.mixed(own)
        else:
            mixing.drafted(token)
            mixed = mixing.logits(logits)
            assert mixed.isfinite().all()
            stated, _, drawn = sample_draft_proposal(mixed, temperatures, top_ks)
            assert (stated.gather(1, drawn) > 0).all()
        assert torch.allclose(stated, plain.mixed(own), atol=1e-6)
        token = copied.tokens[:, place].clone()
        token[-1 - place] = (token[-1 - place] + 1) % VOCAB  # each time one more draft leaves what would be copied
        plain = plain.drafted(token, plain.drafter_probability(own))


def test_a_token_that_is_reported_twice_counts_once() -> None:
    """SGLang's loop reports the first token, which the step has reported already."""
    mixing = Mixing(Copying.begin(Copied(torch.tensor([[1, 2]]), torch.full((1, 2), 0.9))), torch.ones(1, 1))
    mixing.mixed(torch.full((1, 3), 1 / 3))
    for _ in range(2):
        mixing.drafted(torch.tensor([1]))
    assert mixing.logits(torch.zeros(1, 3)).argmax(1).tolist() == [2]


def test_the_most_probable_token_is_that_of_the_mixture() -> None:
    logits, copied = torch.tensor([[2.0, 0.0, 0.0]]).repeat(2, 1), torch.tensor([[1, 1], [1, 1]])
    copying = Copying.begin(Copied(copied, torch.tensor([[0.9, 0.9], [0.0, 0.0]])))
    mixing = Mixing(copying, torch.ones(2, 1))
    assert mixing.mixed(logits.softmax(-1)).argmax(1).tolist() == [1, 0]
    mixing.drafted(torch.tensor([1, 0]))
    assert mixing.logits(logits).argmax(1).tolist() == [1, 0]
