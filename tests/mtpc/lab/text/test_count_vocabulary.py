"""`mtpc vocab build`, from conversations and from text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from mtpc.errors import MTPCError
from mtpc.lab.cli.main import app
from mtpc.lab.text.conversations import FILE, Conversation
from mtpc.lab.text.count_vocabulary import build_rankings, coverage, shortage_notes
from mtpc.vocabulary.formats import read_rankings
from tests.mtpc.lab.chat_folder import END, VOCAB, make_chat_folder


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return make_chat_folder(tmp_path / "target")


def make_data(folder: Path) -> Path:
    """Answers of a letter each: e in English, f in French, c in code; the questions are of other letters."""
    folder.mkdir()
    lines = []
    for index in range(130):
        kind, letter = (("chat", "e"), ("reasoning", "e"), ("source", "c"), ("french", "f"))[index % 4]
        tokens = (*b"question", *(letter * 9).encode(), END)
        lines.append(Conversation(index, kind, f"question {index}", letter * 9, tokens, 8, "stop").to_json())
    (folder / FILE).write_text("\n".join(lines) + "\n")
    return folder


def build(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["vocab", "build", *arguments])


def test_answers_count_under_the_language_of_their_kind(target: Path, tmp_path: Path) -> None:
    file = tmp_path / "vocabulary.json"
    data = make_data(tmp_path / "data")
    result = build(str(file), "--target", str(target), "--data", str(data), "--sizes", "2,20")
    assert result.exit_code == 0, result.output
    rankings = read_rankings(file, VOCAB)
    assert list(rankings.languages) == ["code", "english", "french"]
    for language, letter in (("code", "c"), ("english", "e"), ("french", "f")):
        tokens = rankings.languages[language].tokens
        assert tokens == (ord(letter), END)  # nine letters, then the end
    assert rankings.always == (END,)
    assert "held-out tokens" in result.output
    assert " ".join(result.output.split()).endswith(f"written to {file}")
    assert "distinct tokens in its text" not in result.output  # two of each language fill the smaller size
    assert json.loads(file.read_text())["provenance"]["target"] == "target"


def test_text_files_count_under_the_language_that_is_named(target: Path, tmp_path: Path) -> None:
    (tmp_path / "faust.txt").write_text("aaab\n" * 10, encoding="utf-8")
    (tmp_path / "more.txt").write_text("bbbbbbb", encoding="utf-8")
    file = tmp_path / "vocabulary.json"
    texts = [f"--text=german={tmp_path / 'faust.txt'}", f"--text=latin={tmp_path / 'more.txt'}"]
    result = build(str(file), "--target", str(target), *texts, "--sizes", "20,2,300")
    assert result.exit_code == 0
    assert " ".join(result.output.split()).endswith(f"written to {file}")
    sentence = "latin: only 1 distinct tokens in its text, so the other 1 of 2 are not its own: collect more text."
    assert sentence in " ".join(result.output.split()) and "german: only" not in result.output
    rankings = read_rankings(file, VOCAB)
    assert rankings.languages["german"].tokens == (ord("a"), ord("\n"), ord("b"))
    assert rankings.languages["german"].counts == (30, 10, 10)
    assert rankings.languages["latin"].tokens == (ord("b"),)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--data and --text are missing"),
        (["--text", "faust.txt"], "--text is 'faust.txt', but it must be LANGUAGE=FILE"),
        (["--text", "german=nowhere.txt"], "nowhere.txt cannot be read as text"),
        (["--data", "nowhere"], "nowhere holds no conversations"),
        (["--text", "german=x", "--sizes", "8k"], "'8k' is not a whole number from 1"),
    ],
)
def test_what_can_be_wrong(target: Path, arguments: list[str], message: str, tmp_path: Path) -> None:
    result = build(str(tmp_path / "out.json"), "--target", str(target), *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_no_text_at_all() -> None:
    with pytest.raises(MTPCError, match="no language"):
        build_rankings([], 10)


def test_tokens_beyond_the_targets_vocabulary_are_not_counted() -> None:
    """As a tokenizer may have."""
    assert build_rankings([("a", [3, 3, 10, 12, 1])], 10).languages["a"].tokens == (3, 1)


def test_languages_with_too_few_tokens_are_named() -> None:
    rankings = build_rankings([("a", range(1500)), ("b", range(2500)), ("c", [0])], 4000)
    notes = shortage_notes(rankings, 2500)
    assert [note.partition(":")[0] for note in notes] == ["a", "c"]
    assert "only 1,500 distinct tokens in its text, so the other 1,000 of 2,500 are not its own" in notes[0]
    assert shortage_notes(rankings, 0) == []


def test_coverage_is_the_share_of_the_tokens_in_the_map() -> None:
    rankings = build_rankings([("a", [1, 1, 1, 2]), ("b", [3, 3, 1])], 6)
    found = coverage(rankings, [("a", [1, 1, 2, 4])], [1, 2])
    assert found == {"a": {("a", 1): 0.5, ("a", 2): 0.75, ("b", 1): 0.0, ("b", 2): 0.5}}
