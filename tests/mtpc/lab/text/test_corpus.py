"""Corpus folders: what is written can be read back by kind and split, and the split is stable."""

from pathlib import Path

import numpy as np
import pytest

from mtpc.errors import MTPCError
from mtpc.lab.text import corpus
from mtpc.lab.text.byte_tokenizer import END_OF_TEXT
from mtpc.lab.text.corpus import Corpus, Document, build_corpus

DOCUMENTS = [
    Document(f"document {i}", "prose" if i % 2 else "code", "public domain", f"text {i} ünd\n") for i in range(200)
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(corpus, "SOURCES", (lambda _: iter(DOCUMENTS),))
    build_corpus(tmp_path / "corpus")
    return tmp_path / "corpus"


def test_heldout_text_reads_back_by_kind(folder: Path):
    stored = Corpus(folder)
    for kind in ("prose", "code"):
        expected = "".join(d.text for d in DOCUMENTS if d.heldout and d.kind == kind)
        assert bytes(stored.heldout(kind).astype(np.uint8)).decode() == expected


def test_every_document_is_in_exactly_one_split(folder: Path):
    stored = Corpus(folder)
    names = [entry.name for entry in stored.documents]
    assert sorted(names) == sorted(document.name for document in DOCUMENTS)
    share = sum(entry.split == "heldout" for entry in stored.documents) / len(names)
    assert 0 < share < 0.15
    assert (stored.tokens("train") == END_OF_TEXT).sum() == sum(e.split == "train" for e in stored.documents)


def test_not_a_corpus(tmp_path: Path):
    with pytest.raises(MTPCError, match="is not a corpus folder"):
        Corpus(tmp_path)
