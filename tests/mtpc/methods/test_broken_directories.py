"""Directories that are broken in every way that their models declare: each ends in one sentence that names the file.

Nothing but the broken file is there, so what is wrong is found before anything of the drafter is allocated.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from mtpc.autoregressive import rope
from mtpc.errors import MTPCError, one_line
from mtpc.files.target import TargetKeys
from mtpc.lab.inspect.drafter import inspect_drafter
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.methods import draft_methods
from mtpc.methods.contract import DraftMethod
from mtpc.methods.drafter import load_drafter
from mtpc.parallel.config import ParallelConfig
from mtpc.prompt_lookup.table import FILE, CopyingFile, CopyTable
from mtpc.vocabulary.files import RankingEntry, RankingsFile
from mtpc.vocabulary.formats import read_rankings
from mtpc.vocabulary.ranking import Rankings
from mtpc.vocabulary.settings import CHECKPOINT_FILE
from tests.support.broken_values import broken
from tests.support.random_hybrid import forget_method, register_method

CONFIG, VOCAB, SIZE = "config.json", 6, 16
LAYER: dict[str, Any] = {
    "layer": "llama",
    "hidden_size": SIZE,
    "vocab_size": VOCAB,
    "intermediate_size": 24,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "attention_bias": False,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
    "max_position_embeddings": 128,
}
CIRCUIT: dict[str, Any] = {"circuit": "btree", "window": 4, "rank": 2}
PARALLEL: dict[str, Any] = {
    "positions": 3,
    "blocks": 1,
    "circuit": "cp",
    "rank": 2,
    "component_features": 4,
    "sum_features": 4,
}
SIZES = {"hidden_size": SIZE, "vocab_size": VOCAB}
# A good section of every draft method of the registry, those of the tests included.
SECTIONS: dict[str, dict[str, Any]] = {
    "mtpc": {**CIRCUIT, **SIZES},
    "bytecircuit": {**SIZES, "circuit": "hmm", "window": 8, "rank": 2, "text_bytes": 9, "target_tokens": "0" * 64},
    "fastmtp": {**LAYER, "num_drafts": 3},
    "gumiho": {**LAYER, "num_hidden_layers": 2, "normed": False, "steps": 2, "parallel": PARALLEL},
    "medusa": {**SIZES, "heads": 3},
    "copying": {**SIZES, "num_drafts": 3},
    "pair": {**SIZES, "model": "a", "translation": "tli", "draft_tokens": "0" * 64, "target_tokens": "0" * 64},
    "hybrid": {**LAYER, "circuit": CIRCUIT},
    "between": {**LAYER, "circuit": CIRCUIT, "below": 1},
    "subset": {**LAYER, "parallel": None, "tokens": 2},
}
LENGTH = {"original_max_position_embeddings": 64}
ROPES: tuple[tuple[type[BaseModel], dict[str, Any]], ...] = (
    (rope.DefaultRope, {"rope_type": "default"}),
    (rope.ScaledRope, {"rope_type": "linear", "factor": 2.0}),
    (rope.YarnRope, {"rope_type": "yarn", "factor": 2.0, **LENGTH}),
    (
        rope.Llama3Rope,
        {"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **LENGTH},
    ),
    (rope.LongRope, {"rope_type": "longrope", "short_factor": [1.0] * 2, "long_factor": [1.0] * 2, **LENGTH}),
)
LANGUAGE = {"tokens": [3, 1], "counts": [5, 4], "ranked": True}
VOCABULARY = {"version": 1, "vocab_size": VOCAB, "always": [0], "languages": {"en": LANGUAGE}, "provenance": {}}
CHANCES = {"chances": [0.5, 0.75], "counts": [[1, 2], [3, 4]]}
TARGET = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": SIZE, "vocab_size": VOCAB}


class Case(NamedTuple):
    """What is wrong with which file of a directory, how it is read, and its content."""

    name: str
    file: str
    read: Callable[[Path], object]
    content: str


def method(name: str) -> DraftMethod:
    return next(method for method in draft_methods() if method.name == name)


def whole(name: str, section: dict[str, Any]) -> dict[str, Any]:
    """A config.json as it is written, but for the section."""
    good = method(name).to_json(method(name).config.model_validate(SECTIONS[name]))
    return {**good, name: {"version": 1, **section}}


def rankings_of(folder: Path) -> Rankings:
    """A drafter's own draft vocabulary."""
    return read_rankings(folder / CHECKPOINT_FILE, VOCAB)


def of_configs() -> Iterator[Case]:
    """config.json of every draft method: its section, and the keys that engines read."""
    for name, good in SECTIONS.items():
        case = partial(Case, file=CONFIG, read=load_drafter)
        model = method(name).config
        for what, section in broken(model, good):
            yield case(f"{name}: {what}", content=json.dumps(whole(name, section)))
        for kind, turned in ROPES if name == "fastmtp" else ():
            for what, layer in broken(kind, {"rope_theta": 1e4, **turned}):
                section = {**good, "rope_parameters": layer}
                yield case(f"{name}: {turned['rope_type']}: {what}", content=json.dumps(whole(name, section)))
        for what, parallel in broken(ParallelConfig, PARALLEL) if name == "gumiho" else ():
            section = {**good, "parallel": parallel}
            yield case(f"{name}: parallel: {what}", content=json.dumps(whole(name, section)))
        values = whole(name, good)
        for key, value in values.items():
            wrong = {"list": [value], "nothing": None, "text": f"{value}", "fraction": 0.5, "truth": value != 1}
            wrong |= {"as a fraction": float(value)} if type(value) is int else {}
            for what, other in wrong.items():
                if type(other) is not type(value) or other != value:
                    yield case(f"{name}: {key}: {what}", content=json.dumps({**values, key: other}))
            yield case(f"{name}: no {key}", content=json.dumps({k: v for k, v in values.items() if k != key}))
        for version in (None, "1", True, 1.0, 0, 2):
            section = {**good, "version": version}
            yield case(f"{name}: version {version!r}", content=json.dumps(whole(name, good) | {name: section}))
        yield case(f"{name}: architectures 5", content='{"architectures": 5}')


def of_others() -> Iterator[Case]:
    """vocabulary.json, copying.json, and a target's config.json."""
    for what, values in broken(RankingsFile, VOCABULARY):
        yield Case(f"vocabulary: {what}", CHECKPOINT_FILE, rankings_of, json.dumps(values))
    for what, entry in broken(RankingEntry, LANGUAGE):
        values = {**VOCABULARY, "languages": {"en": entry}}
        yield Case(f"vocabulary: language: {what}", CHECKPOINT_FILE, rankings_of, json.dumps(values))
    for what, values in broken(CopyingFile, CHANCES):
        yield Case(f"copying: {what}", FILE, CopyTable.of, json.dumps(values))
    for what, values in broken(TargetKeys, TARGET):
        if what != "unknown key":
            yield Case(f"target: {what}", CONFIG, FrozenTarget, json.dumps(values))


UNREADABLE = {
    "empty": "",
    "half": '{"mtpc": {',
    "deep": '{"mtpc":' * 100_000,
    "deep lists": "[" * 100_000,
    "a list": "[]",
    "a number": "1e400",
    "a long number": '{"mtpc": ' + "9" * 10_000 + "}",
    "half a character": '"\\ud800"',
}
READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "drafter": (CONFIG, load_drafter),
    "vocabulary": (CHECKPOINT_FILE, rankings_of),
    "chances": (FILE, CopyTable.of),
    "target": (CONFIG, FrozenTarget),
}


def of_no_json() -> Iterator[Case]:
    """The same files, which hold no JSON, or not what JSON here is."""
    for reader, (file, read) in READERS.items():
        for name, content in UNREADABLE.items():
            yield Case(f"{reader}: {name}", file, read, content)


register_method()
CASES = {case.name: case for cases in (of_configs(), of_others(), of_no_json()) for case in cases}
forget_method()


@pytest.fixture(scope="module", autouse=True)
def third_method() -> Iterator[None]:
    """The registry knows it while these tests run."""
    register_method()
    yield
    forget_method()


def assert_one_sentence(read: Callable[[Path], object], folder: Path, file: Path) -> str:
    with pytest.raises(MTPCError) as caught:
        read(folder)
    message = str(caught.value)
    assert one_line(str(file)) in message
    assert "\n" not in message
    assert message.endswith(".")
    assert not re.search(r"\. [A-Z]", message)
    assert len(message) < 600 + len(str(file))
    return message


def test_there_are_enough() -> None:
    assert len(CASES) > 300
    assert set(map(kind_of, CASES)) >= {method.name for method in draft_methods()}


@pytest.mark.parametrize("name", SECTIONS)
def test_what_is_broken_was_good(name: str, tmp_path: Path) -> None:
    (tmp_path / CONFIG).write_text(json.dumps(whole(name, SECTIONS[name])))
    assert method(name).read_config(tmp_path).hidden_size == SIZE


def test_other_files_were_good_before_they_were_broken(tmp_path: Path) -> None:
    (tmp_path / CHECKPOINT_FILE).write_text(json.dumps(VOCABULARY))
    (tmp_path / FILE).write_text(json.dumps(CHANCES))
    assert rankings_of(tmp_path).cut("en", None).tolist() == [0, 1, 3]
    assert CopyTable.of(tmp_path).chances == (0.5, 0.75)
    for kind, values in ROPES:
        kind.model_validate({"rope_theta": 1e4, **values})


def kind_of(name: str) -> str:
    """A draft method, or a kind of file."""
    return name.split(":")[0]


@pytest.mark.parametrize("kind", dict.fromkeys(map(kind_of, CASES)))
def test_one_sentence_that_names_the_file(kind: str, tmp_path: Path, subtests: pytest.Subtests) -> None:
    for name, case in CASES.items():
        if kind_of(name) == kind:
            with subtests.test(name):
                (tmp_path / case.file).write_text(case.content)
                assert_one_sentence(case.read, tmp_path, tmp_path / case.file)


NO_FILES: dict[str, Callable[[Path], object]] = {
    "a link that leads nowhere": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a pipe": os.mkfifo,
    "a directory": Path.mkdir,
}


@pytest.mark.parametrize("what", NO_FILES)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_file_is_not_passed_over(reader: str, what: str, tmp_path: Path) -> None:
    file, read = READERS[reader]
    NO_FILES[what](tmp_path / file)
    assert "is not a file" in assert_one_sentence(read, tmp_path, tmp_path / file)


@pytest.mark.parametrize("what", NO_FILES)
def test_weights_that_are_no_file(what: str, tmp_path: Path) -> None:
    (tmp_path / CONFIG).write_text(json.dumps(whole("mtpc", SECTIONS["mtpc"])))
    NO_FILES[what](tmp_path / "model.safetensors")
    assert_one_sentence(load_drafter, tmp_path, tmp_path / "model.safetensors")


@pytest.mark.parametrize("read", [load_drafter, FrozenTarget, inspect_drafter])
def test_names_that_are_too_long(read: Callable[[Path], object], tmp_path: Path) -> None:
    assert_one_sentence(read, tmp_path / ("a" * 300), tmp_path / ("a" * 300))


LARGEST = {
    "mtpc": {"leaves": "table", "rank": 4096, "window": 256, "hidden_size": 1 << 17, "vocab_size": 1 << 22},
    "fastmtp": {"hidden_size": 1 << 17, "intermediate_size": 1 << 20, "head_dim": 4096, "num_attention_heads": 4096},
    "hybrid": {"max_position_embeddings": 1 << 24, "head_dim": 4096},
}


@pytest.mark.parametrize("name", LARGEST)
def test_sizes_within_bounds_that_fit_no_memory_together(name: str, tmp_path: Path) -> None:
    section = SECTIONS[name] | LARGEST[name]
    values = method(name).to_json(method(name).config.model_validate(section))
    (tmp_path / CONFIG).write_text(json.dumps(values))
    assert "GiB of memory" in assert_one_sentence(load_drafter, tmp_path, tmp_path / CONFIG)


def test_few_weights_that_make_many_distributions(tmp_path: Path) -> None:
    """Shared leaves are small; what one draft mixes, positions x components x vocabulary, is not."""
    section = SECTIONS["mtpc"] | {"rank": 4096, "window": 256, "vocab_size": 1 << 17}
    section |= {"circuit": "cp", "leaf_features": 1, "component_features": 1, "sum_features": 1}
    values = method("mtpc").to_json(method("mtpc").config.model_validate(section))
    (tmp_path / CONFIG).write_text(json.dumps(values))
    assert "GiB of memory" in assert_one_sentence(load_drafter, tmp_path, tmp_path / CONFIG)
