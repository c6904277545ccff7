"""A circuit over bytes: q of every token against its definition, and drafts that are what they state."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
import torch
from torch import Tensor

from mtpc.draft import DraftContext
from mtpc.draw import draw
from mtpc.errors import MTPCError
from mtpc.lab.statistics.chi_square import REJECT_BELOW, chi_square
from mtpc.parallel import byte_part
from mtpc.parallel.byte_part import ByteCircuitPart
from mtpc.prompt_lookup.mixture import Copied, Copying
from mtpc.verify import verify_rejection
from mtpc.vocabulary.token_bytes import TokenBytes
from tests.oracles.byte_part import BytePartOracle
from tests.oracles.drafting import part as weights_of
from tests.support.often import each_of
from tests.support.tiny_models import make_byte_circuit

CIRCUITS = ("ff", "cp", "hmm")
SIZE, WINDOW, RANK, DRAFTS = 8, 11, 2, 4
# Over three bytes, of one to four each; a special token, two that begin alike, one of the window's length, equal bytes.
TOKENS = TokenBytes(
    (None, b"a", b"ab", b"b\xff", b"aba", b"\xff", b"abab", b"a", b"b" * WINDOW, b"b", b"bb", None),
    frozenset({0}),
    frozenset({1}),
)
NEVER = (0, 1, 8, 11, 12)  # special, a byte fallback with the bytes of 7, too long, no token, beyond the tokenizer
VOCAB = len(TOKENS.tokens) + 1


def make(circuit: str, window: int = WINDOW) -> tuple[ByteCircuitPart, BytePartOracle]:
    features = {"leaf_features": 5, "component_features": 4, "sum_features": 6, "trunk_size": 8}
    drafter = make_byte_circuit(circuit, TOKENS, window, RANK, SIZE, VOCAB, **features)
    with torch.no_grad():
        for parameter in drafter.parameters():
            parameter.mul_(0.5)
    made = drafter.parallel
    assert isinstance(made, ByteCircuitPart)
    return made, BytePartOracle(made.config, weights_of(made.state_dict(), "head."), TOKENS)


def contexts(rows: int) -> DraftContext:
    generator = torch.Generator().manual_seed(2)
    hidden = torch.randn(rows, SIZE, generator=generator)
    return DraftContext.of_target(hidden, torch.arange(rows) % VOCAB)


def drafted(part: ByteCircuitPart, known: DraftContext, temperature: Tensor, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Tokens and their rows, all sampled."""
    noise = torch.rand(len(known.tokens), DRAFTS, generator=torch.Generator().manual_seed(seed)).double()
    draft = part.draft(known, temperature, noise, DRAFTS, "sampled")
    assert draft.probs is not None
    return draft.tokens, draft.probs


@pytest.mark.parametrize("circuit", CIRCUITS)
@torch.inference_mode()
def test_q_is_the_product_of_the_marginalized_circuit(circuit: str) -> None:
    """After every token as x_{t+1} and every draft, within the window and beyond it, at several temperatures."""
    part, oracle = make(circuit)
    known, temperature = contexts(2 * VOCAB), torch.linspace(0.4, 2.0, 2 * VOCAB)
    tokens, probs = drafted(part, known, temperature)
    beyond = 0
    for row in range(2 * VOCAB):
        text = [int(known.tokens[row, -1])]
        for place in range(DRAFTS):
            beyond += len(oracle.symbols(text)) >= WINDOW
            law = torch.from_numpy(oracle.law(known.states[row, -1], text, float(temperature[row])))
            torch.testing.assert_close(probs[row, place].double(), law, atol=1e-6, rtol=1e-4)
            assert not probs[row, place, list(NEVER)].any()
            text.append(int(tokens[row, place]))
    torch.testing.assert_close(probs.double().sum(-1), torch.ones(2 * VOCAB, DRAFTS).double(), atol=1e-6, rtol=0)
    assert (tokens == probs.argmax(2)).float().mean() < 0.9 and 10 < beyond < 2 * VOCAB * DRAFTS - 30


@pytest.mark.parametrize("circuit", CIRCUITS)
@torch.inference_mode()
def test_the_targets_token_is_evidence(circuit: str) -> None:
    """By the joint probabilities of its symbols and those of each token; of FF only its length matters."""
    part, oracle = make(circuit)
    known = contexts(VOCAB)
    known = known._replace(states=known.states[:1].expand(VOCAB, -1, -1))
    conditioned, ignored = (
        torch.cat(
            [
                part.log_probs(known, torch.full((VOCAB, 1), token), 1.0, conditioned=conditions)
                for token in range(VOCAB)
            ],
            1,
        ).exp()
        for conditions in (True, False)
    )
    for row in range(VOCAB):
        law = torch.from_numpy(oracle.law(known.states[row, -1], [row]))
        torch.testing.assert_close(conditioned[row].double(), law, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(conditioned.sum(1), torch.ones(VOCAB))
    torch.testing.assert_close(ignored.sum(1), torch.ones(VOCAB))
    same = torch.isclose(conditioned, ignored, atol=1e-5).all(1)
    assert same.nonzero()[:, 0].tolist() == (list(range(VOCAB)) if circuit == "ff" else [8])  # 8 fills the window
    torch.testing.assert_close(conditioned[1], conditioned[7])  # the same bytes
    torch.testing.assert_close(ignored[2], ignored[3])  # lengths
    assert not torch.allclose(ignored[2], ignored[4], atol=1e-3)


@pytest.mark.parametrize("circuit", CIRCUITS)
@torch.inference_mode()
def test_scores_are_those_of_drafts(circuit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stated rows, scores along them, and the most probable tokens, all at once or some requests at a time."""
    part, _ = make(circuit)
    known = contexts(VOCAB)
    tokens, probs = drafted(part, known, torch.full((VOCAB,), 0.7))
    log_q = part.log_probs(known, tokens, 0.7)
    torch.testing.assert_close(log_q.exp(), probs.gather(2, tokens[..., None])[..., 0])
    likely = part.most_probable_tokens(known, tokens)
    for place in range(DRAFTS):
        each = [tokens[:, : place + 1].index_fill(1, torch.tensor([place]), token) for token in range(VOCAB)]
        rows = torch.stack([part.log_probs(known, text, 1.0)[:, place] for text in each], 1)
        assert torch.equal(likely[:, place], rows.argmax(1))
    greedy = part.draft(known, None, None, DRAFTS, "greedy")
    assert greedy.probs is None and torch.equal(part.most_probable_tokens(known, greedy.tokens), greedy.tokens)
    monkeypatch.setattr(byte_part, "MAX_MESSAGES", 50)
    again, rows = drafted(part, known, torch.full((VOCAB,), 0.7))
    assert torch.equal(again, tokens)
    torch.testing.assert_close(rows, probs)


@torch.inference_mode()
def test_prompt_lookup_is_mixed_in() -> None:
    """Also a token that the circuit never drafts; what is drawn is what is stated."""
    part, oracle = make("hmm")
    known, noise = contexts(VOCAB), torch.rand(VOCAB, DRAFTS).double()
    for token in (4, 0):
        chances = torch.tensor([0.9, 0.0, 0.5])[torch.arange(VOCAB) % 3][:, None].expand(-1, DRAFTS).contiguous()
        copying = Copying.begin(Copied(torch.full((VOCAB, DRAFTS), token), chances))
        draft = part.draft(known, torch.ones(VOCAB), noise, DRAFTS, "sampled", copying)
        assert draft.probs is not None
        assert torch.equal(draft.tokens, draw(draft.probs, noise))
        torch.testing.assert_close(draft.probs.sum(-1), torch.ones(VOCAB, DRAFTS))
        for row in range(VOCAB):
            law = torch.from_numpy(oracle.law(known.states[row, -1], [int(known.tokens[row, -1])])).float()
            mixed = (1 - chances[row, 0]) * law
            mixed[token] += chances[row, 0]
            torch.testing.assert_close(draft.probs[row, 0], mixed, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("circuit", each_of(CIRCUITS, ("hmm",)))
@torch.inference_mode()
def test_verification_emits_the_targets_distribution(circuit: str) -> None:
    """Two tokens by rejection sampling; control: rows of a drafter that ignores x_{t+1}'s place."""
    part, rows = make(circuit)[0], 20_000
    known = DraftContext(*(each[2:3].expand(rows, *each.shape[1:]) for each in contexts(3)[:2]))
    generator = torch.Generator().manual_seed(5)
    first = torch.randn(VOCAB, generator=generator).softmax(0)
    second = torch.randn(VOCAB, VOCAB, generator=generator).softmax(1)
    noise, uniforms = (torch.rand(rows, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    draft = part.draft(known, torch.ones(rows), noise[:, :2], 2, "sampled")
    assert draft.probs is not None
    p = torch.stack([first.expand(rows, -1), second[draft.tokens[:, 0]], second[draft.tokens[:, 1]]], 1)
    law = {(x, y): float(first[x] * second[x, y]) for x, y in product(range(VOCAB), repeat=2)}

    def emitted(stated: Tensor) -> float:
        verified = verify_rejection(draft.tokens, stated, p, uniforms[:, :2], uniforms[:, 2])
        after = draw(second[verified.tokens[:, 0]], noise[:, 2])  # where the first draft token was rejected
        others = torch.where(verified.accepted > 0, verified.tokens[:, 1], after)
        return chi_square(Counter(zip(verified.tokens[:, 0].tolist(), others.tolist(), strict=True)), law).p

    assert emitted(draft.probs) > 1e-4
    assert emitted(draft.probs.sqrt() / draft.probs.sqrt().sum(-1, keepdim=True)) < REJECT_BELOW


@torch.inference_mode()
def test_extreme_parameters_state_distributions() -> None:
    """Logits that would leave nothing possible but one symbol, which leads nowhere, in any precision."""
    for circuit, dtype in product(CIRCUITS, (torch.float32, torch.bfloat16)):
        part = make(circuit)[0].to(dtype)
        for parameter in part.parameters():
            parameter.mul_(1000)
        known = contexts(VOCAB)
        probs = drafted(part, known._replace(states=known.states.to(dtype)), torch.full((VOCAB,), 0.1))[1]
        torch.testing.assert_close(probs.sum(-1), torch.ones(VOCAB, DRAFTS), atol=1e-6, rtol=0)
        assert probs.dtype == torch.float32 and (probs >= 0).all()


def test_what_it_refuses() -> None:
    for keys, message in (
        ({"circuit": "btree"}, "ff, cp or hmm"),
        ({"window": 3, "num_drafts": 1}, "window of at least 4"),
        ({"trunk_size": 4, "token_input": True}, "without token_input"),
        ({"num_drafts": 5}, "holds at most 4 draft tokens"),
        ({"target_tokens": "0"}, "target_tokens"),
    ):
        with pytest.raises(ValueError, match=message):
            make_byte_circuit(**{"circuit": "hmm", "window": WINDOW, **keys}, tokens=TOKENS, rank=2, hidden=SIZE)  # type: ignore[arg-type]
    part = make("hmm")[0]
    with pytest.raises(MTPCError, match="cannot draft trees"):
        part.draft_tree(contexts(1), None, 3)
