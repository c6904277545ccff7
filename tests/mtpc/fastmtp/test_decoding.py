"""Speculative decoding with the real loop: the target's own text, and the acceptance that was foretold."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from mtpc.fastmtp.decoding import speculate
from mtpc.fastmtp.evaluation import Answer, evaluate_kinds, expected_acceptance
from mtpc.fastmtp.head import SharedHead
from mtpc.fastmtp.layer import MTPLayer
from mtpc.fastmtp.trainer import TrainConfig, Trainer
from mtpc.targets.answers import write_answers
from mtpc.targets.frozen import FrozenTarget
from mtpc.verify import rates_from_counts
from tests.mtpc.fastmtp.conversations import make_conversations
from tests.mtpc.fastmtp.models import VOCAB, make_layer, make_target
from tests.statistics import REJECT_BELOW, chi_square_p_value

DRAFTS = 3


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> FrozenTarget:
    folder = tmp_path_factory.mktemp("target")
    make_target("llama").save_pretrained(folder)
    return FrozenTarget(folder)


@pytest.fixture(scope="module")
def layer(target: FrozenTarget) -> MTPLayer:
    """Trained for a moment, so that some drafts are right."""
    recipe = TrainConfig(steps=DRAFTS, epochs=20, batch=8, learning_rate=1e-2, micro_batch=8, loss="kl")
    trainer = Trainer(target, make_conversations(target.model, 40), recipe)
    trainer.run(lambda update, losses: None)
    return trainer.layer.requires_grad_(False).eval()


def prompts(count: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randint(VOCAB, (4 + i % 3,), generator=generator).tolist() for i in range(count)]


def test_greedy_text_is_the_targets_whatever_the_drafter(target: FrozenTarget, layer: MTPLayer) -> None:
    head = SharedHead.of(target.model)
    asked = prompts(6)
    expected = write_answers(target, asked, 40, 0.0)
    for drafter in (layer, make_layer(target.model)):
        for each in (head, head.restricted(torch.arange(0, VOCAB, 2))):
            for prompt, text in zip(asked, expected, strict=True):
                assert speculate(target, drafter, each, prompt, 40, DRAFTS).tokens == text[len(prompt) :]


def test_it_ends_where_the_target_ends(target: FrozenTarget, layer: MTPLayer) -> None:
    prompt = prompts(1)[0]
    free = write_answers(target, [prompt], 40, 0.0)[0][len(prompt) :]
    end = free[12]
    found = speculate(target, layer, SharedHead.of(target.model), prompt, 40, DRAFTS, end=end)
    assert found.tokens == free[: free.index(end) + 1]
    assert write_answers(target, [prompt], 40, 0.0, end)[0] == prompt + found.tokens


@pytest.mark.parametrize("restricted", [False, True])
def test_greedy_acceptance_is_what_was_foretold(target: FrozenTarget, layer: MTPLayer, restricted: bool) -> None:
    head = SharedHead.of(target.model)
    head = head.restricted(torch.arange(0, VOCAB, 2)) if restricted else head
    asked = prompts(8)
    texts = write_answers(target, asked, 60, 0.0)
    for prompt, text in zip(asked, texts, strict=True):
        # Steps that start in the first 60 - K tokens are foretold; the loop is cut off at the end.
        foretold = expected_acceptance(target, layer, head, [Answer(text, len(prompt))], DRAFTS, 0.0)
        counts, emitted = [], 1
        for accepted in speculate(target, layer, head, prompt, 60, DRAFTS).accepted:
            if emitted <= 60 - DRAFTS:
                counts.append(accepted)
            emitted += accepted + 1
        measured = rates_from_counts(len(counts), [sum(count > i for count in counts) for i in range(DRAFTS)])
        assert measured.marginal == pytest.approx(foretold.marginal)
        assert measured.length == pytest.approx(foretold.length)


def exact_law(target: FrozenTarget, prompt: list[int], temperature: float) -> dict[tuple[int, int, int], float]:
    """The target's own distribution of the next three tokens."""

    def following(texts: list[list[int]]) -> torch.Tensor:
        return (target.features(torch.tensor(texts)).logits[:, -1] / temperature).softmax(-1).double()

    tokens = range(VOCAB)
    first = following([prompt])[0]
    second = following([[*prompt, i] for i in tokens])
    third = following([[*prompt, i, j] for i in tokens for j in tokens]).view(VOCAB, VOCAB, VOCAB)
    joint = first[:, None, None] * second[:, :, None] * third
    return {(i, j, k): float(joint[i, j, k]) for i in tokens for j in tokens for k in tokens}


def test_sampled_text_is_distributed_as_the_targets(target: FrozenTarget, layer: MTPLayer) -> None:
    head = SharedHead.of(target.model).restricted(torch.arange(0, VOCAB, 2))
    prompt, generator = prompts(1)[0], torch.Generator().manual_seed(0)
    counts: Counter[tuple[int, ...]] = Counter()
    for _ in range(2000):
        found = speculate(target, layer, head, prompt, 3, 2, temperature=0.8, generator=generator)
        counts[tuple(found.tokens)] += 1
    assert chi_square_p_value(counts, exact_law(target, prompt, 0.8)) > REJECT_BELOW
    assert chi_square_p_value(counts, exact_law(target, prompt, 1.0)) < REJECT_BELOW


def test_sampled_acceptance_is_what_was_foretold(target: FrozenTarget, layer: MTPLayer) -> None:
    head, temperature = SharedHead.of(target.model), 0.9
    generator = torch.Generator().manual_seed(1)
    asked = prompts(30)
    texts = write_answers(target, asked, 100, temperature, generator=generator)
    answers = [Answer(text, len(prompt)) for prompt, text in zip(asked, texts, strict=True)]
    foretold = expected_acceptance(target, layer, head, answers, DRAFTS, temperature)
    counts: list[int] = []
    for prompt in asked:
        found = speculate(target, layer, head, prompt, 100, DRAFTS, temperature=temperature, generator=generator)
        counts += found.accepted
    measured = 1 + sum(counts) / len(counts)
    assert measured == pytest.approx(foretold.length, rel=0.06)
    assert foretold.length > 1.1


def test_the_report_has_every_kind_and_both_ways(target: FrozenTarget, layer: MTPLayer) -> None:
    heldout = make_conversations(target.model, 6, seed=3)
    results = evaluate_kinds(target, heldout, {"mine": layer}, questions=2, length=20, loop_questions=1)
    columns = [f"{kind} T={t}" for t in (0, 1) for kind in ("chat", "code", "all")]
    columns += [f"all T={t}, real loop" for t in (0, 1)]
    assert set(results["mine"]) == set(columns)
    assert len(results["mine"]["all T=0"]["marginal_acceptance"]) == DRAFTS
