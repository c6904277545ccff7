"""Corpora, conversations, prompts and results that are damaged: one sentence from every command that reads them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mtpc.lab.cli.main import app
from mtpc.lab.text.conversations import FILE, Conversation
from mtpc.methods.drafter import save_drafter
from tests.mtpc.lab.bench.figures import drafting_always
from tests.mtpc.lab.chat_folder import make_chat_folder
from tests.mtpc.lab.corpus_folder import make_corpus
from tests.support.tiny_models import VOCAB, make_fastmtp, make_target

DEEP = 100_000

# Whatever JSON was there before becomes this.
BYTES: dict[str, bytes] = {
    "empty": b"",
    "no UTF-8": b'{"text": "\xff\xfe"}\n',
    "half": b'{"text": "a',
    "deep": b"[" * DEEP + b"]" * DEEP,
    "deep objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "a number": b"5\n",
    "null": b"null\n",
    "a surrogate": b'{"user": "\\ud800", "text": "\\ud800"}\n',
    "NaN": b'{"text": NaN}\n',
    "zeros": b"\x00" * 64,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target of each kind, a corpus and conversations, all well."""
    folder = tmp_path_factory.mktemp("whole")
    make_target("llama").save_pretrained(folder / "target")
    make_chat_folder(folder / "chat")
    save_drafter(folder / "small", make_fastmtp(make_target("llama", vocab=9, hidden_size=8)), {})
    make_corpus(folder / "corpus", VOCAB)
    (folder / "data").mkdir()
    (folder / "data" / FILE).write_text(Conversation(0, "chat", "q", "a", (1, 2, 3), 1, "stop").to_json() + "\n")
    return folder


def refused(*arguments: object) -> str:
    """The one sentence with which a command ends."""
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    *before, sentence = result.stderr.rstrip("\n").split("\n")
    assert sentence.startswith("mtpc: ") and sentence.endswith("."), result.stderr
    assert all("Loading weights" in line for line in before), result.stderr  # transformers' own bar
    return sentence


def index(change: Callable[[list[dict[str, Any]]], object]) -> Callable[[Path], object]:
    """A change of the list of a corpus' documents."""

    def write(corpus: Path) -> None:
        documents = json.loads((corpus / "documents.json").read_text())
        change(documents)
        (corpus / "documents.json").write_text(json.dumps(documents))

    return write


CORPORA: dict[str, Callable[[Path], object]] = {
    **{
        f"documents.json: {name}": lambda corpus, text=text: (corpus / "documents.json").write_bytes(text)
        for name, text in BYTES.items()
    },
    "no train.bin": lambda corpus: (corpus / "train.bin").unlink(),
    "a folder": lambda corpus: ((corpus / "heldout.bin").unlink(), (corpus / "heldout.bin").mkdir()),
    "an empty text": lambda corpus: (corpus / "train.bin").write_bytes(b""),
    "half a token": lambda corpus: (corpus / "train.bin").write_bytes(b"abc"),
    "a text that was cut off": lambda corpus: (corpus / "heldout.bin").write_bytes(b"ab"),
    "a short text": index(lambda documents: [entry.update(length=5) for entry in documents]),
    "no documents": index(list.clear),
    "a missing key": index(lambda documents: documents[0].pop("kind")),
    "an unknown key": index(lambda documents: documents[0].update(more=1)),
    "a length that is text": index(lambda documents: documents[0].update(length="5")),
    "a negative offset": index(lambda documents: documents[3].update(offset=-1)),
    "a huge length": index(lambda documents: documents[3].update(length=10**30)),
    "another split": index(lambda documents: documents[3].update(split="test")),
    "tokens of another target": lambda corpus: (corpus / "heldout.bin").write_bytes(b"\xff\xff" * 2000),
}


@pytest.mark.parametrize("damage", CORPORA)
def test_a_damaged_corpus(damage: str, whole: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    make_corpus(corpus, VOCAB)
    CORPORA[damage](corpus)
    assert refused("evaluate", whole / "drafter", "--target", whole / "target", "--corpus", corpus)
    if damage not in ("a short text", "no documents", "tokens of another target"):  # those are for what is held out
        target = ("--target", whole / "target", "--out", tmp_path / "out")
        assert str(corpus) in refused("train", "mtpc", *target, "--corpus", corpus)
        assert str(corpus) in refused("target", "bytes", "--corpus", corpus, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_corpus_that_is_too_short_or_of_another_target(whole: Path, tmp_path: Path) -> None:
    short = ("--target", whole / "target", "--corpus", whole / "corpus", "--out", tmp_path / "out")
    make_corpus(tmp_path / "short", VOCAB, length=30)
    assert "more than 128 tokens" in refused("train", "mtpc", *short[:2], "--corpus", tmp_path / "short", *short[4:])
    make_corpus(tmp_path / "other", 60_000, length=2000)
    assert f"below {VOCAB}" in refused("train", "mtpc", *short[:2], "--corpus", tmp_path / "other", *short[4:])
    assert "a context has 1024" in refused("target", "bytes", "--corpus", whole / "corpus", "--out", tmp_path / "o")
    assert list(tmp_path.glob("o*")) == [tmp_path / "other"]


def test_drafters_and_models_that_do_not_fit_into_this_machine(whole: Path, tmp_path: Path) -> None:
    make_corpus(tmp_path / "corpus", VOCAB, length=3000)
    given = ("--corpus", tmp_path / "corpus", "--out", tmp_path / "out")
    large = ("--rank", "4096", "--leaf-features", "65536", "--component-features", "65536")
    assert "but this machine has" in refused("train", "mtpc", "--target", whole / "target", *given, *large)
    wide = ("--hidden-size", "1048576", "--mlp-size", "1048576")
    assert "but this machine has" in refused("target", "bytes", *given, *wide)
    for unfit in (("--heads", "5"), ("--kv-heads", "3"), ("--context", "8192", "--tokens-per-update", "4096")):
        assert refused("target", "bytes", *given, *unfit)


GOOD = Conversation(1, "chat", "question", "answer", (1, 2, 3), 1, "stop")

LINES: dict[str, bytes] = BYTES | {
    name: json.dumps({**json.loads(GOOD.to_json()), **change}).encode() + b"\n"
    for name, change in {
        "an index that is text": {"index": "1"},
        "a negative index": {"index": -1},
        "no tokens": {"tokens": []},
        "tokens of text": {"tokens": ["1", "2", "3"]},
        "tokens that are no list": {"tokens": 5},
        "a negative token": {"tokens": [1, -2, 3]},
        "a huge token": {"tokens": [1, 10**30, 3]},
        "half a token": {"tokens": [1, 2.5, 3]},
        "a start beyond the end": {"start": 4},
        "a start at the start": {"start": 0},
        "a user that is a number": {"user": 5},
        "another end": {"finish": "never"},
        "a nested kind": {"kind": {"a": 1}},
        "an unknown key": {"more": 1},
    }.items()
}  # fmt: skip


@pytest.mark.parametrize("damage", [name for name in LINES if name != "empty"])
def test_damaged_conversations(damage: str, whole: Path, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(
        GOOD.to_json().encode() + b"\n" + LINES[damage] + (b"" if damage == "half" else b"\n")
    )
    given = ("--target", whole / "chat", "--data", tmp_path)
    for arguments in (
        ("train", "fastmtp", *given, "--out", tmp_path / "out"),
        ("evaluate", whole / "drafter", *given),
        ("vocab", "build", tmp_path / "v.json", *given),
    ):
        assert f"{tmp_path / FILE}, line 2" in refused(*arguments)
    if damage != "half":  # what is half written is taken away
        refused("distill", "--target", whole / "chat", "--out", tmp_path, "--url", "http://127.0.0.1:9")
    assert {path.name for path in tmp_path.iterdir()} == {FILE}


def test_conversations_of_another_target(whole: Path, tmp_path: Path) -> None:
    for tokens in ((1, 300, 2), (1, 2, 10**9)):
        conversation = Conversation(1, "chat", "q", "a", tokens, 1, "stop")
        (tmp_path / FILE).write_text(conversation.to_json() + "\n")
        assert "are of another target" in refused(
            "vocab", "build", tmp_path / "v.json", "--target", whole / "chat", "--data", tmp_path
        )


PROMPTS: dict[str, bytes] = BYTES | {
    "text that is a number": b'{"text": 5}\n',
    "a user that is a list": b'{"user": ["a"]}\n',
    "a nested kind": b'{"text": "a", "kind": {}}\n',
    "turns of numbers": b'{"turns": [1]}\n',
}


@pytest.mark.parametrize("damage", PROMPTS)
def test_damaged_prompts(damage: str, whole: Path, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_bytes(PROMPTS[damage])
    commands = (
        ("evaluate", whole / "drafter", "--target", whole / "chat", "--prompts", file),
        (
            "bench",
            "--target",
            whole / "chat",
            "--drafter",
            whole / "drafter",
            "--prompts",
            file,
            "--out",
            tmp_path / "b",
        ),
    )
    for arguments in commands:
        assert str(file) in refused(*arguments)
    assert list(tmp_path.iterdir()) == [file]


def results(**changes: Any) -> bytes:
    """Those of two batch sizes, one of them changed."""
    points = [drafting_always(1).to_json(), drafting_always(4).to_json()]
    whole = changes.pop("point", {})
    points[0]["rounds_with"][0].update(changes)
    points[0].update(whole)
    return json.dumps({"points": points}).encode()


RESULTS: dict[str, bytes] = BYTES | {
    "no points": b'{"points": []}',
    "no rounds": results(point={"rounds_with": []}),
    "no seconds": results(seconds=0),
    "infinite seconds": results(seconds=float("inf")),
    "negative seconds": results(seconds=-1.0),
    "drafting that takes longer than a step": results(seconds_of_a_drafting_call=100.0),
    "no drafts": results(drafts=0),
    "drafts of text": results(drafts="5"),
    "rates above 1": results(point={"marginal_acceptance_rates": [1.5]}),
    "rates that are unknown": results(point={"marginal_acceptance_rates": [None]}),
    "no batch": results(point={"batch_size": 0}),
    "a huge batch": results(point={"batch_size": 10**30}),
    "a temperature that is no number": results(point={"temperature": float("nan")}),
}


@pytest.mark.parametrize("damage", RESULTS)
def test_damaged_results(damage: str, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_bytes(RESULTS[damage])
    assert "results" in refused("plan", file, "--out", tmp_path / "own.yaml")
    assert list(tmp_path.iterdir()) == [file]


def test_results_as_they_are_can_be_planned_with(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_bytes(results())
    assert CliRunner().invoke(app, ["plan", str(tmp_path / "results.json")]).exit_code == 0


TARGETS: dict[str, bytes] = {name: text for name, text in BYTES.items() if name[:4] not in ("NaN", "deep")} | {
    "another model": b'{"model_type": "nothing", "hidden_size": 8, "vocab_size": 9}',
    "a size that is text": b'{"model_type": "llama", "hidden_size": "8", "vocab_size": 9}',
}


@pytest.mark.parametrize("damage", TARGETS)
def test_damaged_targets(damage: str, whole: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "config.json").write_bytes(TARGETS[damage])
    given = ("--target", target, "--out", tmp_path / "out")
    for arguments in (
        ("train", "mtpc", *given, "--corpus", whole / "corpus"),
        ("train", "fastmtp", *given, "--data", whole / "data"),
        ("train", "copying", *given),
        ("evaluate", whole / "small", "--target", target, "--corpus", whole / "corpus"),
    ):
        assert str(target) in refused(*arguments)
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"])
def test_damaged_tokenizers(file: str, tmp_path: Path) -> None:
    chat = make_chat_folder(tmp_path / "chat")
    (chat / file).write_bytes(b"{% for")
    assert "damaged" in (sentence := refused("distill", "--target", chat, "--out", tmp_path / "o")) or (
        "cannot be loaded" in sentence
    )
    assert not (tmp_path / "o").exists()
