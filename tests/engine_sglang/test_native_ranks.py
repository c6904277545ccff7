"""A layer that SGLang runs itself with draft vocabularies on two ranks; the second one's states are off by an ulp.

Alone, and with prompt lookup.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from mtpc.vocabulary.settings import open_vocabularies
from sglang_mtpc.token_map import vocabulary_values
from tests.engine.prompts import in_two_languages
from tests.engine_sglang.reference import JointReference
from tests.engine_sglang.test_ranks import (
    ASKED,
    LENGTH,
    RAY,
    VOCABULARY,
    recorded,
    serving,
    token_map,
)
from tests.support.random_models import make_target
from tests.support.random_native import make_eagle
from tests.support.two_ranks import assert_ranks_draft_the_same

pytestmark = [pytest.mark.engine, pytest.mark.thorough]


@pytest.mark.parametrize(
    ("copying", "way"),
    [("", ""), ("&copy=true", ""), ("&copy=true&copy_tokens=9", ""), ("", RAY)],
    ids=["alone", "copying", "longer copies", "alone, ray"],
)
def test_a_layer_of_sglangs_own_drafts_by_language_and_alike_on_both_ranks(
    copying: str, way: str, tmp_path: Path
) -> None:
    """An EAGLE layer, as a chain that is drawn."""
    target = make_target(tmp_path / "target", seed=3)
    layer, words = make_eagle(tmp_path / "eagle", target, sglang=True), token_map(tmp_path)
    words, copies = words + copying, bool(copying)
    shape = ("--speculative-num-steps", "3", "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4")
    how = ("--speculative-algorithm", "EAGLE", "--speculative-use-rejection-sampling", *shape)
    vocabularies, exact = open_vocabularies(vocabulary_values(words), layer, VOCABULARY), JointReference(target)
    assert vocabularies is not None
    letters, capitals, *_ = (set(ids.tolist()) for ids in vocabularies.ids)
    own, copied = Counter[bool](), 0
    drafter = ("--speculative-draft-model-path", str(layer), "--speculative-token-map", words)
    with serving(target, tmp_path, *how, *drafter, way=way) as server:
        for text in in_two_languages(2 * ASKED):
            prompt = text + text[:LENGTH] * copies
            answer = server.generate(prompt, max_new_tokens=LENGTH, ignore_eos=True)
            assert answer["output_ids"] == exact.greedy(list(prompt.encode()), LENGTH)
            for tokens in recorded(tmp_path, answer["meta_info"]["id"]):
                own[letters.issuperset(tokens) or capitals.issuperset(tokens)] += 1
                copied += len(set(tokens) - letters - capitals)
        repeated = {"max_new_tokens": LENGTH, "ignore_eos": True, "temperature": 1.0, "n": 8}
        assert_ranks_draft_the_same(tmp_path, lambda: server.generate(prompt, **repeated))
    if copies:
        assert copied > 10
        return
    assert own[True] > max(30, 3 * own[False])  # but for first drafts of a step after which the language is another
