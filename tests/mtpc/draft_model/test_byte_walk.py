"""SLRS: tokens of a target that are drafted byte by byte, the q that they are drawn with, and what is verified."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from mtpc.draft_model import byte_walk, pair
from mtpc.draft_model.byte_walk import ByteWalk
from mtpc.draft_model.pair import PairPart
from mtpc.draft_model.part import TextDraft
from mtpc.errors import MTPCError
from mtpc.lab.convert.pair import convert_pair
from mtpc.lab.evaluation.decoding import probabilities, speculate_text
from mtpc.lab.statistics.chi_square import REJECT_BELOW, chi_square
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.methods.pair import Pair
from mtpc.verify import verify_strings
from mtpc.vocabulary.token_counts import COUNTS
from tests.support.random_pair import load_pair, make_pair, make_text_target
from tests.support.small_tokenizers import byte_level, byte_target, sentence_piece

TEXTS = ("The quick brown", "def area(width", "x", "It was 17:42 ")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_text_target(tmp_path_factory.mktemp("models") / "target", byte_level())


@pytest.fixture(scope="module")
def drafter(target: Path) -> Path:
    return make_pair(target.parent / "pair", target, None, tokenizer=byte_target(), min_confidence=0.0)


def load(drafter: Path, target: Path, lazily: bool, min_confidence: float = 0.0) -> PairPart:
    """The text part, which verifies with q of single tokens or not."""
    part = load_pair(drafter, target)
    part.verifies_lazily, part.min_confidence = lazily, min_confidence
    return part


def ids_of(text: str, target: Path) -> list[int]:
    ids: list[int] = AutoTokenizer.from_pretrained(target).encode(text)
    return ids


def drafts_of_all(part: PairPart, target: Path, emitted: Sequence[list[int]]) -> TextDraft:
    """The draft of three tokens after each text and what was emitted since; one request is greedy."""
    for text, more in zip(TEXTS, emitted, strict=True):
        part.add(text, lambda text=text, more=more: ids_of(text, target) + more, more)
    noise = torch.rand(len(TEXTS), 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return part.draft(TEXTS, [0.7, 1.0, 0.0, 1.3], [3] * len(TEXTS), noise)


def q_of_all(part: PairPart, drafter: Path, text: bytes, temperature: float) -> np.ndarray:
    """Q of every token after a text, by forward passes of the draft model over whole texts."""
    model = AutoModelForCausalLM.from_pretrained(Pair().read_config(drafter).model, dtype=torch.float32)
    ids = part.tokenizers.own.tokens.by_bytes()
    columns = [ids[bytes([byte])] for byte in range(256)]

    @torch.no_grad()
    def probs(more: bytes) -> np.ndarray | None:
        if len(more) >= byte_walk.SEEN:
            return None
        read = torch.tensor([[ids[bytes([byte])] for byte in text + more]])
        return (model(read).logits[0, -1, columns].double() / temperature).softmax(0).numpy()

    assert part.spelled is not None
    trie = part.spelled.trie
    return np.exp([trie.log_prob(token, probs) for token in range(part.vocab_size)])


@pytest.mark.parametrize("seen", [1, 16])
def test_tokens_are_drawn_from_the_q_of_all_tokens(
    seen: int, target: Path, drafter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A grid of uniforms draws each token as often as q states, within the two ends of its interval."""
    for module in (byte_walk, pair):
        monkeypatch.setattr(module, "SEEN", seen)
    part, grid = load(drafter, target, lazily=True), 320
    text = ids_of(TEXTS[0], target)
    counts, stated = Counter[int](), {}
    for first in range(0, grid, part.model.slots):
        keys = list(range(part.model.slots))
        for key in keys:
            part.add(key, lambda: text, [])
        noise = torch.tensor([[(first + key + 0.5) / grid] for key in keys], dtype=torch.float64)
        draft = part.draft(keys, [0.7] * len(keys), [1] * len(keys), noise)
        assert draft.probs is None and draft.lazy is not None
        for (token,), (q,) in zip(draft.tokens, draft.lazy.stated.tolist(), strict=True):
            counts[token] += 1
            stated[token] = q
        part.forget(keys)
    q = q_of_all(part, drafter, TEXTS[0].encode(), 0.7)
    assert q.sum() == pytest.approx(1.0, abs=1e-9)
    assert all(abs(counts[token] - grid * q[token]) < 1.01 for token in range(part.vocab_size))
    assert stated == pytest.approx({token: q[token] for token in stated}, rel=1e-4)
    assert len(counts) > 5
    assert any(len(part.tokenizers.target.tokens.tokens[token]) > seen for token in counts) == (seen == 1)


def test_questions_about_a_position_are_of_the_text_before_it(target: Path, drafter: Path) -> None:
    """The answers are those of a draft that begins there, and what is drafted later is not changed by them."""
    part, rows = load(drafter, target, lazily=True), torch.arange(len(TEXTS))
    token = part.tokenizers.target.tokens.by_bytes()[b" times"]
    draft = drafts_of_all(part, target, [[]] * len(rows))
    emitted = draft.tokens

    def q(draft: TextDraft, position: int) -> Tensor:
        assert draft.lazy is not None
        return draft.lazy.of(rows, torch.full_like(rows, position), torch.full_like(rows, token))

    for position in reversed(range(3)):  # a question changes what is behind it in a slot
        begun = drafts_of_all(load(drafter, target, lazily=True), target, [tokens[:position] for tokens in emitted])
        torch.testing.assert_close(q(draft, position), q(begun, 0), rtol=1e-4, atol=0.0)
    later, fresh = (drafts_of_all(each, target, emitted) for each in (part, load(drafter, target, lazily=True)))
    assert later.tokens == fresh.tokens and later.lazy is not None and fresh.lazy is not None
    torch.testing.assert_close(later.lazy.stated, fresh.lazy.stated, rtol=1e-4, atol=0.0)


@pytest.mark.thorough
def test_q_of_any_token_at_any_position(target: Path, drafter: Path) -> None:
    """In a batch with a greedy request and one without a slot; after each question the slot can still be read."""
    part = load(drafter, target, lazily=True)
    texts = {text: ids_of(text, target) for text in TEXTS}
    for ids in texts.values():
        part.add(tuple(ids), lambda ids=ids: ids, [])
    keys, temperatures = [tuple(ids) for ids in texts.values()], [0.7, 1.0, 0.0, 1.3]
    noise = torch.rand(4, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    draft = part.draft(keys, temperatures, [3] * len(keys), noise)
    lazy = draft.lazy
    assert lazy is not None
    for row, (text, temperature) in enumerate(zip(TEXTS, temperatures, strict=True)):
        for position, drafted in reversed(list(enumerate(draft.tokens[row]))):
            written = text.encode() + part.tokenizers.target.tokens.text_of(draft.tokens[row][:position])
            expected = np.eye(part.vocab_size)[drafted]
            if temperature:
                expected = q_of_all(part, drafter, written, temperature)
            for token in {drafted, 0, 70, *range(256, part.vocab_size, 9)}:
                (q,) = lazy.of(*(torch.tensor([each]) for each in (row, position, token))).tolist()
                assert q == pytest.approx(expected[token], rel=1e-4, abs=1e-12)
            assert float(lazy.stated[row, position]) == pytest.approx(expected[drafted], rel=1e-4)
        request = part.requests[keys[row]]
        before, request.kept = part.draft(keys[row : row + 1], [0.0], [3], None), 0
        request.cached = []
        assert part.draft(keys[row : row + 1], [0.0], [3], None).tokens == before.tokens


def test_a_batch_drafts_what_each_request_drafts_alone(target: Path, drafter: Path) -> None:
    part, alone = load(drafter, target, lazily=True, min_confidence=0.2), load(drafter, target, True, 0.2)
    noise = torch.rand(len(TEXTS), 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for temperature in (0.0, 0.8):
        for text in TEXTS:
            for each in (part, alone):
                each.add(text, lambda text=text: ids_of(text, target), [])
        batch = part.draft(TEXTS, [temperature] * len(TEXTS), [4] * len(TEXTS), noise).tokens
        assert batch == [
            alone.draft([text], [temperature], [4], noise[row : row + 1]).tokens[0] for row, text in enumerate(TEXTS)
        ]
        assert len({len(tokens) for tokens in batch}) > 1  # some end early
        assert max(map(len, batch)) > 1


@pytest.mark.thorough
def test_greedy_output_is_the_targets(target: Path, drafter: Path) -> None:
    frozen = FrozenTarget(target, dtype=torch.float32)
    for lazily in (False, True):
        part, accepted = load(drafter, target, lazily), 0
        for text in TEXTS:
            prompt = ids_of(text, target)
            expected = frozen.model.generate(
                torch.tensor([prompt]), max_new_tokens=150, do_sample=False, eos_token_id=None, pad_token_id=0
            )[0, len(prompt) :]
            decoded = speculate_text(frozen, part, prompt, 150, 3)
            assert decoded.tokens == expected.tolist()
            accepted += sum(decoded.accepted)
        assert accepted > 50 and not part.requests


def verified(part: PairPart, text: list[int], p: Tensor, temperature: float, steps: int) -> tuple[Counter[int], float]:
    """Draft and verify `steps` batches; return counts of the first tokens, and the acceptance rate at position 1."""
    generator, counts, accepted, keys = (
        torch.Generator().manual_seed(2),
        Counter[int](),
        0,
        list(range(part.model.slots)),
    )
    target = p.expand(len(keys), 3, -1)
    for _ in range(steps):
        for key in keys:
            part.add(key, lambda: text, [])
        noise, accept, last = torch.rand(len(keys), 4 + len(p), generator=generator).double().split([2, 2, len(p)], 1)
        draft = part.draft(keys, [temperature] * len(keys), [2] * len(keys), noise)
        assert draft.lazy is not None
        result = verify_strings(torch.tensor(draft.tokens), draft.lazy.stated, draft.lazy, target, accept, last)
        counts.update(result.tokens[:, 0].tolist())
        accepted += int((result.accepted > 0).sum())
        part.forget(keys)
    return counts, accepted / steps / len(keys)


def test_verified_tokens_are_the_targets(target: Path, drafter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a control the most probable branches are taken and stated as if they were drawn."""
    part, text, temperature = load(drafter, target, lazily=True), ids_of(TEXTS[1], target), 0.9
    logits = FrozenTarget(target, dtype=torch.float32).model(torch.tensor([text])).logits[0, -1]
    p = probabilities(logits.detach().float(), temperature)
    expected = dict(enumerate(p.tolist()))
    counts, accepted = verified(part, text, p, temperature, 220)
    assert chi_square(counts, expected).p > 1e-4
    q = q_of_all(part, drafter, TEXTS[1].encode(), temperature)
    overlap = float(np.minimum(q, p.numpy()).sum())
    assert overlap > 0.05 and accepted == pytest.approx(overlap, abs=0.02)
    right = byte_walk.choose_branch
    monkeypatch.setattr(byte_walk, "choose_branch", lambda branches, uniform: right(branches, None))
    assert chi_square(verified(part, text, p, temperature, 220)[0], expected).p < REJECT_BELOW


@pytest.mark.thorough
def test_sampled_output_is_the_targets(target: Path, drafter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second token of an output, whatever the first was, with both ways to verify.

    Control: next to no probability is stated for a draft, so that every one is accepted.
    """
    frozen, temperature = FrozenTarget(target, dtype=torch.float32), 1.2
    prompt = ids_of(TEXTS[1], target)
    part = load(drafter, target, lazily=False)
    with torch.no_grad():
        first = probabilities(frozen.model(torch.tensor([prompt])).logits[0, -1].double(), temperature)
        texts = torch.tensor([[*prompt, token] for token in range(part.vocab_size)])
        seconds = probabilities(frozen.model(texts).logits[:, -1].double(), temperature)
    expected = dict(enumerate((first @ seconds).tolist()))

    def sample() -> tuple[float, int]:
        """Return the p-value of the second tokens, and the number of accepted drafts."""
        generator, counts, accepted = torch.Generator().manual_seed(7), Counter[int](), 0
        for _ in range(500):
            decoded = speculate_text(frozen, part, prompt, 2, 1, temperature=temperature, generator=generator)
            counts[decoded.tokens[1]] += 1
            accepted += sum(decoded.accepted)
        return chi_square(counts, expected).p, accepted

    for lazily in (True, False):
        part.verifies_lazily = lazily
        p, accepted = sample()
        assert p > 1e-4 and accepted > 5
    honest = part.draft

    def misstated(*arguments: Any) -> TextDraft:
        tokens, probs, _ = honest(*arguments)
        return TextDraft(tokens, torch.full_like(probs, 1e-9))

    monkeypatch.setattr(part, "draft", misstated)
    p, accepted = sample()
    assert p < REJECT_BELOW and accepted > 250


def test_a_long_token_ends_a_draft(target: Path, drafter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (byte_walk, pair):
        monkeypatch.setattr(module, "SEEN", 1)
    part = load(drafter, target, lazily=True)
    spelled = part.tokenizers.target.tokens.tokens
    lengths = Counter[int]()
    generator = torch.Generator().manual_seed(0)
    for key in range(40):
        part.add(key, lambda: ids_of(TEXTS[0], target), [])
        ((*before, last),) = part.draft([key], [1.0], [4], torch.rand(1, 4, generator=generator).double()).tokens
        assert all(len(spelled[token] or b"") == 1 for token in before)
        assert len(before) == 3 or len(spelled[last] or b"") > 1
        lengths[len(before)] += 1
    assert len(lengths) > 1


def test_what_convert_writes(target: Path, drafter: Path, tmp_path: Path) -> None:
    """Chosen for a draft model over bytes, refused for one with larger tokens."""
    assert Pair().read_config(drafter).translation == "slrs"
    stored = load_file(drafter / COUNTS)
    ids = ids_of("The text that the overlap is measured on.", target)
    assert stored["occurrences"].tolist() == np.bincount(ids, minlength=len(stored["occurrences"])).tolist()
    assert not (stored["pauses"] > stored["occurrences"]).any()
    with pytest.raises(MTPCError, match=r"method slrs requires a drafter over bytes, but the drafter has .* decomp"):
        convert_pair(str(target), target, tmp_path / "out", ids, "slrs")
    assert not (tmp_path / "out").exists()
    by_pieces = make_text_target(tmp_path / "pieces", sentence_piece())
    with pytest.raises(MTPCError, match="method slrs requires"):
        convert_pair(str(by_pieces), target, tmp_path / "out", ids, "slrs")


def test_broken_counts_are_one_sentence(target: Path, drafter: Path, tmp_path: Path) -> None:
    stored = load_file(drafter / COUNTS)
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((drafter / name).read_bytes())
    broken = {
        "'pauses' is missing": {"occurrences": stored["occurrences"]},
        "'more' is unknown": {**stored, "more": stored["pauses"].clone()},
        "'occurrences' has shape": {**stored, "occurrences": stored["occurrences"][:-1].clone()},
        "'occurrences' is of type torch.int32": {**stored, "occurrences": stored["occurrences"].int()},
        "'pauses' holds -1, but counts are not negative": {**stored, "pauses": stored["pauses"] - 1},
    }
    with pytest.raises(MTPCError, match=COUNTS):
        load_pair(tmp_path, target)
    for message, tensors in broken.items():
        save_file(tensors, tmp_path / COUNTS)
        with pytest.raises(MTPCError, match=message):
            load_pair(tmp_path, target)


def test_a_walk_is_full_only_between_tokens(target: Path, drafter: Path) -> None:
    part = load(drafter, target, lazily=False)
    assert part.spelled is not None
    walk = ByteWalk(part.tokenizers, part.spelled, 0.0, None)
    seen = []
    for _ in range(200):
        walk.choose(torch.randn(part.model.vocab_size, generator=torch.Generator().manual_seed(len(walk.own))))
        seen.append(walk.is_full(len(walk.tokens)))
        assert not walk.is_full(len(walk.tokens) + 1)
    assert {*seen} == {True, False}
