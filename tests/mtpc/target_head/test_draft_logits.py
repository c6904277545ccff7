"""Logits of mixed batches, against one row at a time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from mtpc.draw import draw_tokens
from mtpc.target_head import draft_logits
from mtpc.target_head.draft_logits import DraftLogits
from mtpc.target_head.rows import MAX_INT8_ROWS, HeadRows
from mtpc.vocabulary.ranking import Ranking, Rankings
from mtpc.vocabulary.vocabularies import DraftVocabularies, VocabularySettings

VOCAB, SIZE = 40, 8
LANGUAGES = {
    name: Ranking(tuple(range(start, start + 12))) for name, start in (("english", 0), ("french", 6), ("code", 25))
}
VOCABULARIES = DraftVocabularies(Rankings(VOCAB, LANGUAGES, always=(39,)), VocabularySettings(size=9))
HEAD = torch.randn(VOCAB, SIZE, generator=torch.Generator().manual_seed(0))


def one_at_a_time(states: Tensor, numbers: list[int]) -> Tensor:
    """Every logit on its own."""
    logits = torch.full((len(states), VOCAB), -torch.inf, dtype=states.dtype)
    for row, number in enumerate(numbers):
        for token in VOCABULARIES.ids[number].tolist():
            logits[row, token] = torch.dot(HEAD[token].to(states.dtype), states[row])
    return logits


@pytest.mark.parametrize(
    "numbers", [[0], [1, 1, 1], [2, 0, 3, 1, 1, 0, 2, 3, 2], []], ids=["one", "same", "mixed", "none"]
)
def test_every_row_has_the_logits_of_its_vocabulary(numbers: list[int]) -> None:
    states = torch.randn(len(numbers), SIZE)
    logits = DraftLogits(VOCABULARIES, HEAD)(states, torch.tensor(numbers, dtype=torch.int64))
    torch.testing.assert_close(logits, one_at_a_time(states, numbers))


def test_the_head_of_some_requests_has_their_vocabularies() -> None:
    """With equally many states for each request."""
    numbers, states = torch.tensor([2, 0, 3, 1]), torch.randn(4, 2, SIZE)
    head, some = DraftLogits(VOCABULARIES, HEAD).head(numbers), slice(1, 3)
    torch.testing.assert_close(head.of_rows(some).logits(states[some]), head.logits(states)[some])


@pytest.mark.parametrize("numbers", [[0], [2], [3], [1, 1, 1], [2, 0, 3, 1, 1, 0, 2, 3, 2], []])
def test_greedy_tokens_are_those_of_the_largest_logits(numbers: list[int]) -> None:
    states, logits = torch.randn(len(numbers), SIZE), DraftLogits(VOCABULARIES, HEAD)
    tokens = logits.greedy(states, torch.tensor(numbers, dtype=torch.int64))
    assert tokens.tolist() == one_at_a_time(states, numbers).argmax(-1).tolist()
    assert logits.greedy(states).tolist() == one_at_a_time(states, [0] * len(numbers)).argmax(-1).tolist()


@pytest.mark.parametrize("rows", [1, 3])
def test_a_static_batch_is_drafted_without_a_look_at_its_values(rows: int) -> None:
    """As a CUDA graph must be: on fake tensors whatever asks for a value raises."""
    together = VOCABULARIES.union()
    assert together is not None
    with FakeTensorMode(allow_non_fake_inputs=True):
        logits = DraftLogits(together, HEAD)
        states = torch.empty(rows, SIZE)
        assert logits(states).shape == (rows, VOCAB)
        assert logits.greedy(states).shape == (rows,)


@pytest.mark.parametrize("numbers", [[0], [2], [3], [1, 1, 1], [2, 0, 3, 1, 1, 0, 2, 3, 2], []])
def test_tokens_are_drawn_from_the_distributions_of_their_vocabularies(numbers: list[int]) -> None:
    states, uniforms = torch.randn(len(numbers), SIZE), torch.rand(len(numbers), dtype=torch.float64)
    temperature = 0.3 + torch.rand(len(numbers))
    tokens, probs = DraftLogits(VOCABULARIES, HEAD).drawn(states, temperature, uniforms, torch.tensor(numbers).long())
    expected = (one_at_a_time(states, numbers) / temperature[:, None]).softmax(-1)
    torch.testing.assert_close(probs, expected)
    for row, number in enumerate(numbers):
        below = VOCABULARIES.ids[number] < tokens[row]
        start = expected[row, VOCABULARIES.ids[number][below]].sum()
        assert start - 1e-6 <= uniforms[row] <= start + expected[row, tokens[row]] + 1e-6


@pytest.mark.parametrize("numbers", [[0], [2], [3], [1, 1, 1], [2, 0, 3, 1, 1, 0, 2, 3, 2], []])
def test_the_most_probable_token_and_the_probability_of_another(numbers: list[int]) -> None:
    logits, states = DraftLogits(VOCABULARIES, HEAD), torch.randn(len(numbers), SIZE)
    copied = torch.arange(len(numbers)) * 3 % len(HEAD)  # also tokens that are not in the row's vocabulary
    found = logits.most_probable(states, copied, torch.tensor(numbers, dtype=torch.int64))
    probs = one_at_a_time(states, numbers).softmax(-1)
    assert found[0].tolist() == probs.argmax(-1).tolist()
    torch.testing.assert_close(found[1], probs.amax(-1))
    torch.testing.assert_close(found[2], probs.gather(1, copied[:, None])[:, 0])


def test_draws_without_numbers_are_from_the_first() -> None:
    _, probs = DraftLogits(VOCABULARIES, HEAD).drawn(torch.randn(3, SIZE), torch.ones(3), torch.rand(3).double())
    assert probs.bool().nonzero()[:, 1].tolist() == VOCABULARIES.ids[0].tolist() * 3


def test_draws_are_as_frequent_as_they_are_probable() -> None:
    logits, count = torch.randn(1, 20).bfloat16(), 10_000
    uniforms = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    tokens, probs = draw_tokens(logits.expand(count, 20), torch.full((count,), 0.7), uniforms)
    assert probs.dtype == torch.float32
    torch.testing.assert_close(probs[0], (logits[0].double() / 0.7).softmax(-1).float())
    torch.testing.assert_close(tokens.bincount(minlength=20) / count, probs[0], atol=2 / count, rtol=0)


def test_rare_tokens_of_a_large_vocabulary_are_drawn_as_often_as_is_said() -> None:
    logits = torch.randn(1, 50_000, generator=torch.Generator().manual_seed(0)) * 4  # the rarest asked has 1e-13
    _, probs = draw_tokens(logits, torch.ones(1), torch.zeros(1, dtype=torch.float64))
    share = probs[0].double() / probs.double().sum()
    starts = share.cumsum(0) - share
    asked = torch.arange(1, 50_000, 500)
    for within in (0.01, 0.99):  # of the token's share of the uniforms
        uniforms = starts[asked] + within * share[asked]
        tokens, _ = draw_tokens(logits.expand(len(asked), -1), torch.ones(len(asked)), uniforms)
        assert tokens.tolist() == asked.tolist()


def test_a_temperature_of_zero_takes_the_most_probable_token() -> None:
    logits = torch.randn(6, 20)
    temperature = torch.tensor([0.0, 1.0, 0.0, 0.0, 1.0, 0.0])
    tokens, probs = draw_tokens(logits, temperature, torch.zeros(6, dtype=torch.float64))
    greedy = temperature == 0
    assert tokens[greedy].tolist() == logits.argmax(-1)[greedy].tolist()
    assert tokens[~greedy].tolist() == [0, 0]
    assert probs.isfinite().all()


def test_without_numbers_the_first_is_for_all() -> None:
    states = torch.randn(3, SIZE)
    torch.testing.assert_close(DraftLogits(VOCABULARIES, HEAD)(states), one_at_a_time(states, [0, 0, 0]))


def test_a_fixed_map_needs_no_numbers() -> None:
    fixed = DraftVocabularies(Rankings(VOCAB, LANGUAGES), VocabularySettings(size=5, language="code"))
    logits = DraftLogits(fixed, HEAD)(torch.randn(2, SIZE), torch.tensor([0, 0]))
    assert logits.isfinite().sum().item() == 2 * 5
    assert logits[:, fixed.ids[0]].isfinite().all()


def test_the_type_is_that_of_the_states() -> None:
    assert DraftLogits(VOCABULARIES, HEAD)(torch.randn(2, SIZE, dtype=torch.bfloat16)).dtype == torch.bfloat16


@pytest.mark.parametrize("number", [1, 2], ids=["french", "all"])
def test_few_rows_in_bfloat16_read_int8_rows(number: int) -> None:
    languages = {name: Ranking(tuple(range(start, start + 64))) for name, start in (("english", 0), ("french", 30))}
    vocabularies = DraftVocabularies(Rankings(128, languages), VocabularySettings(size=64))
    head = torch.randn(128, 32).bfloat16()
    logits = DraftLogits(vocabularies, head)
    states = torch.randn(MAX_INT8_ROWS + 1, 32).bfloat16()
    numbers = torch.full((len(states),), number)
    together = logits(states, numbers)
    for some in range(1, MAX_INT8_ROWS + 1):
        few = logits(states[:some], numbers[:some])
        assert torch.equal(few.isneginf(), together[:some].isneginf())
        assert not torch.equal(few, together[:some])
        possible = few.isfinite()
        torch.testing.assert_close(few[possible], together[:some][possible], atol=0.2, rtol=0.02)
        assert logits.greedy(states[:some], numbers[:some]).tolist() == few.argmax(-1).tolist()


def test_what_is_rounded_of_the_whole_head_is_told() -> None:
    logits = DraftLogits(VOCABULARIES, HEAD)
    assert isinstance(logits.whole, HeadRows)
    assert logits.whole.rounded is None  # in float32 nothing is
    languages = {"english": Ranking(tuple(range(4096)))}
    vocabularies = DraftVocabularies(Rankings(8192, languages), VocabularySettings(size=4096))
    logits = DraftLogits(vocabularies, torch.randn(8192, 32).bfloat16())
    rows, whole = 4096 * (32 * 2 + 32 + 2), 8192 * (32 + 2)
    assert logits.summary.endswith(f"take {(rows + whole) / 1e6:.1f} MB")


def test_logits_of_all_tokens_are_the_engines() -> None:
    asked: list[int] = []

    def whole(states: Tensor) -> Tensor:
        asked.append(len(states))
        return 2 * states @ HEAD.T

    logits, states = DraftLogits(VOCABULARIES, HEAD, whole), torch.randn(4, SIZE)
    computed = logits(states, torch.tensor([3, 0, 3, 1]))
    torch.testing.assert_close(computed[[0, 2]], 2 * states[[0, 2]] @ HEAD.T)
    torch.testing.assert_close(computed[[1, 3]], one_at_a_time(states[[1, 3]], [0, 1]))
    assert asked == [2]  # for the rows that need them


def test_what_is_kept_of_the_head() -> None:
    head = HEAD.clone()
    logits = DraftLogits(VOCABULARIES, head)
    assert all(rows.share.untyped_storage().data_ptr() != head.untyped_storage().data_ptr() for rows in logits.rows)
    assert sum(rows.nbytes for rows in logits.rows) == 3 * 9 * SIZE * 4
    assert logits.summary == (
        "drafting from english (9 tokens), french (9 tokens), code (9 tokens), all (40 tokens) of 40 tokens; "
        "their output head rows take 0.0 MB"
    )
    assert logits.whole is not None
    together = VOCABULARIES.union()
    assert together is not None
    assert DraftLogits(together, head).whole is None


def test_rows_of_a_group_are_sent_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[torch.device] = []
    monkeypatch.setattr(draft_logits, "copy_to_device", lambda rows, device: did.append(device) or rows)
    found = [
        (number, rows.tolist())
        for number, rows in draft_logits.rows_by_vocabulary(torch.tensor([1, 0, 1]), HEAD.device)
    ]
    assert found == [(0, [1]), (1, [0, 2])]
    assert did == [HEAD.device] * 2


def test_one_draft_vocabulary_of_all_tokens_gains_nothing() -> None:
    everything = {"english": Ranking(tuple(range(30))), "french": Ranking(tuple(range(20, VOCAB)))}
    assert DraftVocabularies(Rankings(VOCAB, everything), VocabularySettings()).union() is None
    assert DraftVocabularies(Rankings(VOCAB, everything), VocabularySettings(language="french")).union()
