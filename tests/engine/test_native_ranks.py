"""A drafter of vLLM's own with draft vocabularies on two ranks, of which the second one's states are off by an ulp."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.prompts import in_two_languages
from tests.engine.ranks import CORES, PLUGINS, RANKS
from tests.engine.server import alone, tokens
from tests.engine.test_native import SIZE, serving, vocabularies_used
from tests.engine.test_native_copying import asked_of
from tests.engine.test_ranks import ASKED, ask_for_sampled_texts
from tests.support.two_ranks import assert_ranks_draft_the_same

pytestmark = [pytest.mark.engine, pytest.mark.thorough]


def test_a_drafter_of_vllms_own_drafts_by_language_and_alike_on_both_ranks(tmp_path: Path) -> None:
    variables = {"STATED_DRAFTS": str(tmp_path / "stated"), **CORES}
    with alone(), serving(tmp_path, *RANKS, path=PLUGINS, **variables) as native:
        used = vocabularies_used(native, in_two_languages(2 * ASKED))
        assert_ranks_draft_the_same(tmp_path, lambda: ask_for_sampled_texts(native.server))
    assert min(used[0], used[1]) > 10


def test_both_ranks_copy_alike(tmp_path: Path) -> None:
    """With draft vocabularies, in greedy texts, which are the target's, and in sampled ones."""
    variables = {"STATED_DRAFTS": str(tmp_path / "stated"), **CORES}
    section = {"copy": True, "adaptive": False, "vocabulary": str(tmp_path / "vocabulary.json"), "size": SIZE}
    with alone(), serving(tmp_path, *RANKS, section=section, path=PLUGINS, **variables) as native:
        prompts = asked_of(native.exact)
        emitted = tokens(native.server.complete(prompts, max_tokens=16, ignore_eos=True))
        assert emitted == [native.exact.greedy(prompt, 16) for prompt in prompts]
        assert_ranks_draft_the_same(tmp_path, lambda: ask_for_sampled_texts(native.server))
