"""What SGLang's loop states and draws with copying is the mixture, token by token, held against the plain one."""

from __future__ import annotations

import pytest
import torch
from sglang.srt.speculative.spec_utils import sample_draft_proposal

from mtpc.draft_length.passes import Enough
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
    mixing, plain = Mixing(copied, temperatures), Copying.begin(copied)
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
        plain = plain.drafted(token, plain.of(own))
    assert torch.allclose(mixing.peaks()[:, -1], stated.amax(1), atol=1e-6)


def test_the_most_probable_token_is_that_of_the_mixture() -> None:
    logits, copied = torch.tensor([[2.0, 0.0, 0.0]]).repeat(2, 1), torch.tensor([[1, 1], [1, 1]])
    mixing = Mixing(Copied(copied, torch.tensor([[0.9, 0.9], [0.0, 0.0]])), torch.ones(2, 1))
    assert mixing.mixed(logits.softmax(-1)).argmax(1).tolist() == [1, 0]
    mixing.drafted(torch.tensor([1, 0]))
    assert mixing.logits(logits).argmax(1).tolist() == [1, 0]


def test_the_loop_is_ended_before_a_pass_that_is_not_worth_it() -> None:
    asked: list[tuple[list[int], list[float]]] = []

    def goes_on(tokens: torch.Tensor, peaks: torch.Tensor) -> bool:
        asked.append((tokens.tolist(), peaks.tolist()))
        return len(asked) < 2

    mixing = Mixing(Copied(torch.zeros(2, 3).long(), torch.zeros(2, 3)), torch.ones(2, 1), goes_on)
    first, second = torch.tensor([[0.1, 0.6, 0.3], [0.5, 0.3, 0.2]]), torch.tensor([[0.2, 0.2, 0.6]] * 2)
    mixing.mixed(first)
    tokens = torch.tensor([1, 0])  # SGLang has one place for those of all passes
    mixing.drafted(tokens)
    mixing.drafted(tokens)  # told before
    mixing.logits(second.log())
    with pytest.raises(Enough):
        mixing.drafted(tokens.copy_(torch.tensor([2, 1])))
    drafted = mixing.draft(greedy=False)
    assert drafted.tokens.tolist() == [[1, 2], [0, 1]]
    assert drafted.probs is not None
    assert torch.allclose(drafted.probs, torch.stack([first, second], 1))
    assert mixing.draft(greedy=True).probs is None
    peaks = torch.tensor([[0.6, 0.6], [0.5, 0.6]])
    assert torch.allclose(mixing.peaks(), peaks)
    assert asked == [([1, 0], peaks[:, 0].tolist()), ([2, 1], pytest.approx(peaks[:, 1].tolist()))]
