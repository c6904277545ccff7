"""Draft vocabularies of every format, and one sentence for a file that is none."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from mtpc.errors import MTPCError, one_line
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
    assert read_rankings(tmp_path / file, VOCAB) == Rankings(VOCAB, {"any": expected})


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


def entry(**values: object) -> Callable[[Path], object]:
    return edited(languages={"en": {"tokens": [3, 1], "counts": [5, 4], "ranked": True} | values})


def pickled(content: object) -> tuple[str, Callable[[Path], object]]:
    return "a.pt", lambda path: torch.save(content, path)


def text(content: str, file: str = "a.json") -> tuple[str, Callable[[Path], object]]:
    return file, lambda path: path.write_text(content)


BROKEN: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "nothing there": ("a.json", lambda path: None, "is missing"),
    "a link that leads nowhere": ("a.json", lambda path: path.symlink_to("b"), "is not a file, or is a broken link"),
    "a link to itself": ("a.json", lambda path: path.symlink_to(path), "is not a file, or is a broken link"),
    "a pipe": ("a.json", lambda path: os.mkfifo(path), "is not a file"),
    "a pipe of tensors": ("a.pt", lambda path: os.mkfifo(path), "is not a file"),
    "a long name": ("a" * 300, lambda path: None, "cannot be read: File name too long"),
    "no JSON": (*text("{"), "cannot be read as JSON"),
    "deep JSON": (*text("[" * 100_000), "cannot be read as JSON: recursion limit"),
    "no pickle": ("a.pt", lambda path: path.write_bytes(b"nothing"), "cannot be read as a draft vocabulary"),
    "a text": (*text("the\nof\nand\n", "a.pt"), "cannot be read as a draft vocabulary"),
    "an empty file": (*text("", "a.pt"), "cannot be read as a draft vocabulary"),
    "no safetensors": ("a.safetensors", lambda path: path.write_bytes(b"{}"), "cannot be read as a draft vocabulary"),
    "code in a pickle": (*pickled(Path("x")), "cannot be read as a draft vocabulary"),
    "a number": (*text("3"), "holds a int"),
    "other tensors": (
        "a.safetensors",
        lambda path: save_file({"weight": torch.ones(3)}, path),
        "no list of tokens, no counts",
    ),
    "words": (*text('["a"]'), "at '0': it is 'a', but should be a valid integer"),
    "an empty list": (*text("[]"), "at least 1 item"),
    "an empty object": (*text("{}"), "no list of tokens, no counts"),
    "nothing counted": (*text('{"1": 0}'), "the ranking of 'any' contains no token"),
    "nothing chosen": (*pickled({"t2d": torch.zeros(VOCAB)}), "t2d of"),
    "no entry chosen": (*pickled({"t2d": torch.zeros(VOCAB, dtype=torch.bool)}), "contains no token"),
    "counts beyond any": (*text('{"1": 1e400}'), "at '0.1': it is inf, but should be"),
    "counts that are none": (*text('{"1": NaN}'), "at '0.1': it is nan"),
    "counts in words": (*text('{"1": "many"}'), "at '0.1': it is 'many'"),
    "counts below zero": (*text('{"1": -3}'), "at '0.1': it is -3"),
    "counted words": (*text('{"the": 3}'), "'the' is not a token id"),
    "one token": (*pickled(torch.tensor(3)), "row of 1 to 12 integers, but is [] of torch.int64"),
    "a table": (*pickled(torch.ones(2, 2, dtype=torch.int64)), "row of 1 to 12 integers"),
    "fractions": (*pickled(torch.tensor([1.5])), "row of 1 to 12 integers"),
    "sparse": (*pickled(torch.tensor([1, 2]).to_sparse()), "row of 1 to 12 integers"),
    "sparse, d2t": (*pickled({"d2t": torch.tensor([1, 2]).to_sparse()}), "d2t of"),
    "0-d, t2d": (*pickled({"t2d": torch.tensor(True)}), "t2d of"),
    "a view of any size": (*pickled(torch.zeros(1, dtype=torch.int64).expand(10**15)), "row of 1 to 12 integers"),
    "another vocabulary's ids": (*pickled([7, 12]), "token ids from 0 to 11"),
    "another vocabulary's mask": (
        *pickled({"t2d": MASK[:-1]}),
        "has 11 entries, but the target's vocabulary has 12",
    ),
    "twice": (*text("[1, 1]"), "contains a token twice"),
    "another target": ("a.json", edited(vocab_size=13), "ranks a vocabulary of 13 tokens, but the target's has 12"),
    "newer": ("a.json", edited(version=2), "at 'version': it is 2, but should be less than or equal to 1"),
    "unknown key": ("a.json", edited(colour="red"), "unknown key 'colour'"),
    "no counts": ("a.json", edited(languages={"en": {"tokens": [1]}}), "the key 'counts' is missing"),
    "no mapping": ("a.json", edited(languages=[]), "at 'languages': it is []"),
    "no language": ("a.json", edited(languages={}), "at 'languages'"),
    "no tokens": ("a.json", entry(tokens=[], counts=[]), "at 'languages.en.tokens'"),
    "no boolean": ("a.json", entry(ranked="no"), "at 'languages.en.ranked': it is 'no', but should be true or false"),
    "fewer counts": ("a.json", entry(counts=[5]), "has 2 tokens, but 1 counts"),
    "a count in words": ("a.json", entry(counts=["5", "4"]), "at 'languages.en.counts.0': it is '5'"),
    "a count that is none": ("a.json", entry(counts=[float("nan"), 4]), "at 'languages.en.counts.0': it is nan"),
    **{
        f"a language called {name!r}": (
            "a.json",
            edited(languages={name: {"tokens": [1], "counts": None, "ranked": True}}),
            "a language cannot be named",
        )
        for name in ("auto", "none", "", "a\nb")
    },
}


@pytest.mark.parametrize("case", BROKEN)
def test_one_sentence_for_a_broken_file(case: str, tmp_path: Path) -> None:
    file, write, message = BROKEN[case]
    write(tmp_path / file)
    with pytest.raises(MTPCError) as caught:
        read_rankings(tmp_path / file, VOCAB)
    assert message in str(caught.value)
    assert one_line(str(tmp_path / file)) in str(caught.value)
    assert "\n" not in str(caught.value)
