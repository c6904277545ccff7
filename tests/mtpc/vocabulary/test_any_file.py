"""Whatever a file of a draft vocabulary holds: one sentence refuses it, or every language has a token to draft."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from mtpc.errors import MTPCError
from mtpc.target_head.draft_logits import DraftLogits
from mtpc.vocabulary.formats import read_rankings
from mtpc.vocabulary.ranking import ALL, UNION
from mtpc.vocabulary.vocabularies import DraftVocabularies, VocabularySettings

VOCAB, SIZE = 6, 3
ids = st.integers(-1, VOCAB)
few = st.lists(ids, max_size=4)
distinct = st.lists(st.integers(0, VOCAB - 1), max_size=VOCAB, unique=True)
leaf = st.none() | st.booleans() | ids | st.floats() | st.sampled_from(["", "1", "auto", "en", 10**30])
anything = st.recursive(leaf, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))
counts = st.dictionaries(ids.map(str), st.integers(0, 3) | st.floats(), max_size=4)
entry = st.fixed_dictionaries(
    {"tokens": distinct | few, "counts": st.none() | few, "ranked": st.booleans()}, optional={"colour": leaf}
)
own = st.fixed_dictionaries(
    {
        "version": st.sampled_from([1, 1, 1, 2, True]),
        "vocab_size": st.sampled_from([VOCAB, VOCAB, VOCAB, VOCAB + 1]),
        "always": distinct | few,
        "languages": st.dictionaries(st.sampled_from(["en", "fr", "auto", ""]), entry | anything, max_size=3),
        "provenance": st.just({}) | leaf,
    }
)
in_json = anything | few | distinct | counts | own
kinds = st.sampled_from([torch.int64, torch.int32, torch.bool, torch.uint8, torch.float32])
tensors = st.builds(
    lambda values, kind: torch.tensor(values).to(kind), few | distinct | st.just([[1, 2], [3, 4]]) | ids, kinds
) | st.builds(lambda length, kind: torch.zeros(length).to(kind), st.integers(0, VOCAB), kinds)
masks = st.lists(st.booleans(), min_size=VOCAB, max_size=VOCAB).map(torch.tensor)
pickled = tensors | st.dictionaries(st.sampled_from(["d2t", "t2d", "x"]), tensors | masks, max_size=2) | in_json
UNLIMITED = settings(max_examples=400, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def head() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(VOCAB, SIZE)


def drafts_or_sentence(file: Path, head: torch.Tensor) -> None:
    """One of the two."""
    try:
        rankings = read_rankings(file, VOCAB)
    except MTPCError as error:
        message = str(error)
        rankings = None
    event("refused" if rankings is None else "accepted")
    if rankings is None:
        assert str(file) in message and "\n" not in message
        return
    for size in (None, 1, 3, VOCAB):
        try:
            vocabularies = DraftVocabularies(rankings, VocabularySettings(size))
        except MTPCError:  # part of an unordered set, or fewer than are always drafted
            assert size is not None
            continue
        others = [name for name in vocabularies.names if name not in rankings.languages]
        assert others in ([ALL], [UNION, ALL])
        for served in (vocabularies, vocabularies.union()):
            if served is None:
                continue  # that is all tokens
            states, numbers = torch.randn(len(served.ids), SIZE), torch.arange(len(served.ids))
            tokens = DraftLogits(served, head).greedy(states, numbers).tolist()
            for token, of_language in zip(tokens, served.ids, strict=True):
                assert token in of_language.tolist()


@UNLIMITED
@given(content=in_json)
def test_any_json(content: Any, head: torch.Tensor, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.getbasetemp() / "any.json"
    file.write_text(json.dumps(content))
    drafts_or_sentence(file, head)


@UNLIMITED
@given(content=pickled)
def test_any_pickle(content: Any, head: torch.Tensor, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.getbasetemp() / "any.pt"
    torch.save(content, file)
    drafts_or_sentence(file, head)


@UNLIMITED
@given(content=st.binary(max_size=64), kind=st.sampled_from(["json", "pt", "safetensors", "txt"]))
def test_any_bytes(content: bytes, kind: str, head: torch.Tensor, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.getbasetemp() / f"any.{kind}"
    file.write_bytes(content)
    drafts_or_sentence(file, head)
