"""The comparison with transformers' assisted generation, on random models and small tokenizers of different kinds."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.assisted_generation import GREEDY, compare_outputs, compare_vocabularies, main
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.methods.pair import Rule
from tests.support.often import each_of
from tests.support.random_pair import load_pair, make_pair, make_text_target
from tests.support.small_tokenizers import TEXTS, byte_level, byte_target, sentence_piece


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_text_target(tmp_path_factory.mktemp("target"), byte_level())


@pytest.mark.parametrize("rule", each_of(GREEDY, ("slem",)))
def test_the_same_outputs(target: Path, tmp_path: Path, rule: Rule) -> None:
    folder = make_pair(tmp_path / "pair", target, "tli", tokenizer=sentence_piece(), noise=0.1, min_confidence=0.0)
    prompts = [byte_level().encode(text[:40]) for text in TEXTS]
    draft = folder.with_name("pair-draft-model")
    found = compare_outputs(FrozenTarget(target), load_pair(folder, target), draft, rule, prompts, 32)
    assert found.equal == found.outputs == len(TEXTS)
    assert found.tokens > 60 and found.accepted > 10 and not found.gaps


def test_vocabularies_by_name_and_by_bytes() -> None:
    """SentencePiece and byte-level BPE name a byte differently; the letters of words, and the end, alike."""
    assert compare_vocabularies(sentence_piece(), byte_level(), 403) == {
        ("TLI only", "one byte"): 251,
        ("both alike", "one byte"): 5,
        ("both alike", "longer"): 2,
        ("both alike", "special"): 1,
    }
    assert compare_vocabularies(byte_target(), byte_level(), 403) == {("both alike", "one byte"): 256}


def test_the_command(target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_pair(tmp_path / "pair", target, "slem", tokenizer=sentence_piece(), noise=0.1)
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"text": text[:40]}) + "\n" for text in TEXTS))
    options = ["--target", str(target), "--prompts", str(file), "--max-tokens", "8"]
    assert main([*options, "--drafter", str(tmp_path / "pair")]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"TLI and USD +1 +1 ", printed) and re.search(r"TLI only +one byte +251", printed)
    make_pair(tmp_path / "walked", target, "slrs", tokenizer=byte_target())
    assert main([*options, "--drafter", str(tmp_path / "walked")]) == 2
