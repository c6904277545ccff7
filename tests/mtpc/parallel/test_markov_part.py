"""Drafts of a Markov head against a reference implementation, with all tokens and with a draft vocabulary."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mtpc.draft import DraftContext
from mtpc.methods.mtpc import MTPCConfig
from mtpc.parallel.head_inputs import with_head_inputs
from mtpc.parallel.markov_part import MarkovPart
from mtpc.prompt_lookup.mixture import Copied, Copying
from mtpc.target_head.shared import SharedHead

VOCAB, HIDDEN, WINDOW, RANK, ROWS = 11, 8, 5, 3, 10
HEADS = {"all tokens": None, "draft vocabulary": torch.tensor([1, 2, 5, 6, 9])}
SIZES = {"hidden_size": HIDDEN, "vocab_size": VOCAB, "leaf_features": 4, "trunk_size": 6}


@pytest.fixture
def part() -> MarkovPart:
    torch.manual_seed(0)
    config = MTPCConfig(
        circuit="ff", window=WINDOW, rank=1, leaves="target", token_input=True, markov_rank=RANK, **SIZES
    )
    made = MarkovPart(config, RANK)
    for weight in made.parameters():
        weight.data.normal_()
    return made.requires_grad_(False)


def head_of(name: str) -> SharedHead:
    torch.manual_seed(1)
    whole = SharedHead(torch.randn(VOCAB, HIDDEN), torch.randn(VOCAB, HIDDEN))
    ids = HEADS[name]
    return whole if ids is None else whole.restricted(ids)


def context_of(head: SharedHead) -> DraftContext:
    torch.manual_seed(2)
    return with_head_inputs(DraftContext(torch.randn(ROWS, 1, HIDDEN), torch.randint(VOCAB, (ROWS, 1))), None, head)


def plain(part: MarkovPart, context: DraftContext, row: int, before: list[int], temperature: float) -> Tensor:
    """q(x_i | x_<i) over all tokens, of one request."""
    head = context.head
    assert isinstance(head, SharedHead) and context.inputs is not None
    features = part.head.trunk(context.states[row], context.tokens[row], context.inputs[row])  # type: ignore[misc]
    state = part.head.leaves.states(features)[0, len(before), 0]
    previous = before[-1] if before else int(context.tokens[row, 0])
    logits = torch.full((VOCAB,), -torch.inf)
    tokens = range(VOCAB) if head.ids is None else head.ids.tolist()
    for place, token in enumerate(tokens):
        logits[token] = head.rows[place] @ state + part.after[token] @ part.before.weight[previous]
    return (logits / temperature).softmax(-1)


@pytest.mark.parametrize("name", HEADS)
def test_drafts_and_scores_are_those_of_a_plain_loop(part: MarkovPart, name: str) -> None:
    context = context_of(head_of(name))
    temperature = torch.tensor([0.0, 0.4, 1.0, 2.5, 1.0]).repeat(2)
    noise = torch.rand(ROWS, WINDOW - 1, dtype=torch.float64)
    draft = part.draft(context, temperature, noise, WINDOW - 1, "mixed")
    greedy = part.draft(context, None, None, WINDOW - 1, "greedy").tokens
    scores = part.log_probs(context, draft.tokens, 1.7)
    best = part.most_probable_tokens(context, draft.tokens)
    assert draft.probs is not None and draft.probs.shape == (ROWS, WINDOW - 1, VOCAB)
    for row in range(ROWS):
        assert temperature[row] > 0 or torch.equal(greedy[row], draft.tokens[row])
        for position in range(WINDOW - 1):
            before, token = draft.tokens[row, :position].tolist(), draft.tokens[row, position]
            stated = plain(part, context, row, before, float(temperature[row]) or 1.0)
            torch.testing.assert_close(draft.probs[row, position], stated)
            ends = stated.double().cumsum(0)
            drawn = (ends > noise[row, position] * ends[-1]).nonzero()[0, 0] if temperature[row] else stated.argmax()
            assert token == drawn
            torch.testing.assert_close(scores[row, position], plain(part, context, row, before, 1.7)[token].log())
            assert best[row, position] == stated.argmax()


@pytest.mark.parametrize("name", HEADS)
def test_prompt_lookup_is_mixed_in_exactly(part: MarkovPart, name: str) -> None:
    """Tokens to copy may be outside of the draft vocabulary; the bias of the next token is theirs."""
    context = context_of(head_of(name))
    copied = Copied(torch.randint(VOCAB, (ROWS, WINDOW - 1)), torch.full((ROWS, WINDOW - 1), 0.8))
    noise = torch.rand(ROWS, WINDOW - 1, dtype=torch.float64)
    draft = part.draft(context, torch.ones(ROWS), noise, WINDOW - 1, "sampled", Copying.begin(copied))
    assert draft.probs is not None
    for row in range(ROWS):
        state = Copying.begin(copied).of_rows(slice(row, row + 1))
        for position in range(WINDOW - 1):
            drafter = plain(part, context, row, draft.tokens[row, :position].tolist(), 1.0)[None]
            torch.testing.assert_close(draft.probs[row, position], state.mixed(drafter)[0])
            state = state.drafted(draft.tokens[row, position, None], state.drafter_probability(drafter))


def test_a_token_outside_of_the_draft_vocabulary_is_never_drafted(part: MarkovPart) -> None:
    context = context_of(head_of("draft vocabulary"))
    assert (part.log_probs(context, torch.zeros(ROWS, 2, dtype=torch.int64), 1.0) == -torch.inf).all()


def test_a_shortened_part_drafts_the_same_first_tokens(part: MarkovPart) -> None:
    context, short = context_of(head_of("all tokens")), part.shortened(2)
    assert short.max_drafts == 2 and sum(p.numel() for p in short.parameters()) < sum(
        p.numel() for p in part.parameters()
    )
    whole = part.draft(context, None, None, WINDOW - 1, "greedy").tokens[:, :2]
    assert torch.equal(short.draft(context, None, None, 2, "greedy").tokens, whole)
