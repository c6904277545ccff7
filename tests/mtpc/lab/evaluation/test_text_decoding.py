"""Speculative decoding with a pair: the text is the target's own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from mtpc.draft_model.part import TextDraft
from mtpc.lab.evaluation.decoding import speculate_text
from mtpc.lab.statistics.chi_square import REJECT_BELOW
from mtpc.lab.statistics.windows import Window
from mtpc.lab.targets.frozen import FrozenTarget
from tests.engine.exact import Reference, Sampling, cells, p_value
from tests.support.random_pair import TOKENIZERS, load_pair, make_pair, make_text_target
from tests.support.small_tokenizers import TEXTS, byte_level

DRAFTS, SAMPLES, LENGTH = 4, 700, 3
SAMPLING = Sampling(0.9)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_text_target(tmp_path_factory.mktemp("target") / "target", byte_level(), seed=3)


def pair(folder: Path, target: Path, translation: str, number: int = 0, noise: float = 0.5) -> Path:
    """Its draft model has the tokenizer of one of the pairs of `TOKENIZERS`."""
    tokenizer = list(TOKENIZERS.values())[number][1]()
    return make_pair(folder / translation, target, translation, tokenizer=tokenizer, noise=noise, min_confidence=0.05)


def prompts(target: Path) -> list[list[int]]:
    tokenizer = AutoTokenizer.from_pretrained(target)
    return [tokenizer.encode(text[start : start + 40]) for text in TEXTS for start in (0, 17, 40)]


@pytest.mark.parametrize("translation", ["tli", "slem"])
def test_greedy_text_is_the_targets_and_some_drafts_are_right(target: Path, tmp_path: Path, translation: str) -> None:
    frozen, exact = FrozenTarget(target), Reference(target)
    steps = accepted = 0
    for number in range(len(TOKENIZERS)):
        part = load_pair(pair(tmp_path / f"{number}", target, translation, number), target)
        for prompt in prompts(target)[number :: len(TOKENIZERS)]:
            decoded = speculate_text(frozen, part, prompt, 40, DRAFTS)
            assert decoded.tokens == exact.greedy(prompt, 40)
            steps, accepted = steps + len(decoded.accepted), accepted + sum(decoded.accepted)
        assert not part.requests
    assert 1.1 < 1 + accepted / steps < DRAFTS


@pytest.mark.thorough
@pytest.mark.parametrize("translation", ["tli", "slem"])
def test_sampled_text_is_distributed_as_the_targets(
    target: Path, tmp_path: Path, translation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: a part that states next to no probability for what it drafts."""
    frozen, part = FrozenTarget(target), load_pair(pair(tmp_path, target, translation, noise=2.0), target)
    prompt, generator = prompts(target)[0], torch.Generator().manual_seed(0)
    table = cells(Reference(target), prompt, SAMPLING, SAMPLES)
    assert len(table) > 10

    def sample() -> list[Window]:
        options = {"temperature": SAMPLING.temperature, "generator": generator}
        return [tuple(speculate_text(frozen, part, prompt, LENGTH, 2, **options).tokens) for _ in range(SAMPLES)]

    assert p_value(sample(), table) > REJECT_BELOW
    honest = part.draft

    def misstated(*arguments: object) -> TextDraft:
        tokens, probs, _ = honest(*arguments)
        return TextDraft(tokens, torch.full_like(probs, 1e-9))

    monkeypatch.setattr(part, "draft", misstated)
    assert p_value(sample(), table) < REJECT_BELOW
