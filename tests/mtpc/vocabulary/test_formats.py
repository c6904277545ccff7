"""Draft vocabularies of every format, and one sentence for a file that is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from mtpc.errors import MTPCError
from mtpc.vocabulary.formats import read_rankings
from mtpc.vocabulary.ranking import Ranking, Rankings

VOCAB = 12
OFFSETS = torch.tensor([1, 1, 5])  # the tokens 1, 2 and 7
MASK = torch.zeros(VOCAB, dtype=torch.bool).index_fill(0, torch.tensor([1, 2, 7]), True)
COUNTS = {7: 3, 1: 9, 2: 3, 5: 0}

FORMATS: dict[str, tuple[str, Callable[[Path], object], Ranking]] = {
    "FR-Spec": ("freq_3.pt", lambda path: torch.save([7, 1, 2], path), Ranking((7, 1, 2))),
    "a tensor of ids": ("ids.pt", lambda path: torch.save(torch.tensor([7, 1, 2]), path), Ranking((7, 1, 2))),
    "EAGLE-3, d2t": (
        "model.safetensors",
        lambda path: save_file({"d2t": OFFSETS, "t2d": MASK, "fc.weight": torch.ones(1)}, path),
        Ranking((1, 2, 7), ranked=False),
    ),
    "EAGLE-3, d2t in pickle": (
        "pytorch_model.bin",
        lambda path: torch.save({"d2t": OFFSETS}, path),
        Ranking((1, 2, 7), ranked=False),
    ),
    "EAGLE-3, t2d": ("t2d.pt", lambda path: torch.save({"t2d": MASK}, path), Ranking((1, 2, 7), ranked=False)),
    "speculators": ("token_freq.pt", lambda path: torch.save(COUNTS, path), Ranking((1, 2, 7), (9, 3, 3))),
    "JSON list": ("ids.json", lambda path: path.write_text("[7, 1, 2]"), Ranking((7, 1, 2))),
    "JSON counts": ("counts.json", lambda path: path.write_text(json.dumps(COUNTS)), Ranking((1, 2, 7), (9, 3, 3))),
}


@pytest.mark.parametrize("name", FORMATS)
def test_formats_of_others(name: str, tmp_path: Path) -> None:
    file, write, expected = FORMATS[name]
    write(tmp_path / file)
    assert read_rankings(tmp_path / file, VOCAB, "zh") == Rankings(VOCAB, {"zh": expected})


def test_the_own_format(tmp_path: Path) -> None:
    rankings = Rankings(VOCAB, {"en": Ranking((3, 1), (5, 4)), "set": Ranking((2,), ranked=False)}, always=(2, 0))
    path = tmp_path / "vocabulary.json"
    rankings.save(path, {"made_by": "tests"})
    assert read_rankings(path, VOCAB) == rankings
    assert json.loads(path.read_text())["provenance"] == {"made_by": "tests"}


def edited(**values: object) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        Rankings(VOCAB, {"en": Ranking((3, 1), (5, 4))}).save(path, {})
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return write


BROKEN: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "nothing there": ("a.json", lambda path: None, "is missing"),
    "no JSON": ("a.json", lambda path: path.write_text("{"), "cannot be read as a draft vocabulary"),
    "no pickle": ("a.pt", lambda path: path.write_bytes(b"nothing"), "cannot be read as a draft vocabulary"),
    "no safetensors": ("a.safetensors", lambda path: path.write_bytes(b"{}"), "cannot be read as a draft vocabulary"),
    "code in a pickle": ("a.pt", lambda path: torch.save(Path("x"), path), "cannot be read as a draft vocabulary"),
    "a number": ("a.json", lambda path: path.write_text("3"), "holds a int"),
    "other tensors": (
        "a.safetensors",
        lambda path: save_file({"weight": torch.ones(3)}, path),
        "no list of tokens, no counts",
    ),
    "words": ("a.json", lambda path: path.write_text('["a"]'), "token ids from 0 to 11"),
    "another vocabulary's ids": ("a.pt", lambda path: torch.save([7, 12], path), "token ids from 0 to 11"),
    "another vocabulary's mask": (
        "a.pt",
        lambda path: torch.save({"t2d": MASK[:-1]}, path),
        "t2d has 11 entries, but the target's vocabulary has 12",
    ),
    "twice": ("a.json", lambda path: path.write_text("[1, 1]"), "holds a token twice"),
    "another target": ("a.json", edited(vocab_size=13), "ranks a vocabulary of 13 tokens, but the target's has 12"),
    "newer": ("a.json", edited(version=2), "version is 2"),
    "unknown key": ("a.json", edited(colour="red"), "the key 'colour' is unknown"),
    "no counts": ("a.json", edited(languages={"en": {"tokens": [1]}}), "lists of tokens and counts"),
    "no mapping": ("a.json", edited(languages=[]), "lists of tokens and counts"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_one_sentence_for_a_broken_file(case: str, tmp_path: Path) -> None:
    file, write, message = BROKEN[case]
    write(tmp_path / file)
    with pytest.raises(MTPCError) as caught:
        read_rankings(tmp_path / file, VOCAB)
    assert message in str(caught.value)
    assert str(tmp_path / file) in str(caught.value)
    assert "\n" not in str(caught.value)
