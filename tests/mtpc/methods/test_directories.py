"""What every draft method of the registry is held to, the third one included: its directories on disk, read strictly.

What is broken is derived from a drafter itself: every key of its section, and its own tensors.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from mtpc.errors import MTPCError
from mtpc.files.target import Target
from mtpc.methods import method_of, recognize
from mtpc.methods.drafter import Drafter, load_drafter, save_drafter
from tests.support.random_hybrid import forget_method, register_method
from tests.support.tiny_methods import EXAMPLES, VOCAB
from tests.support.tiny_models import SIZE

ROOT = Path(__file__).parents[3]
FITTING = Target(hidden_size=SIZE, vocab_size=VOCAB)
CONFIG, WEIGHTS = "config.json", "model.safetensors"
Break = Callable[[Path, Drafter], object]

examples = pytest.mark.parametrize("example", EXAMPLES)


@pytest.fixture(scope="module", autouse=True)
def third_method() -> Iterator[None]:
    """The registry knows it while these tests run."""
    register_method()
    yield
    forget_method()


def of_config(change: Callable[[dict[str, Any]], object]) -> Break:
    """Changes the whole of config.json."""

    def edit(folder: Path, drafter: Drafter) -> None:
        values = json.loads((folder / CONFIG).read_text())
        change(values)
        (folder / CONFIG).write_text(json.dumps(values))

    return edit


def of_section(change: Callable[[dict[str, Any]], object]) -> Break:
    """Changes the draft method's own section."""
    return lambda folder, drafter: of_config(lambda values: change(values[drafter.method.name]))(folder, drafter)


def of_weights(change: Callable[[dict[str, Tensor], str], object]) -> Break:
    """Changes the tensors; it is given the name of one, whichever comes last."""

    def edit(folder: Path, drafter: Drafter) -> None:
        weights = load_file(folder / WEIGHTS)
        change(weights, max(drafter.tensors(), default=""))
        save_file(weights, folder / WEIGHTS)

    return edit


def truncated(folder: Path, drafter: Drafter) -> None:
    path = folder / WEIGHTS
    path.write_bytes(path.read_bytes()[:-100])


# How a checkpoint is broken, and a part of the error message; {name}: the method's, {tensor}: the changed one's.
BROKEN: dict[str, tuple[Break, str]] = {
    "no config": (lambda folder, _: (folder / CONFIG).unlink(), "config.json is missing"),
    "config not JSON": (lambda folder, _: (folder / CONFIG).write_text("{"), "cannot be read as JSON"),
    "config a list": (lambda folder, _: (folder / CONFIG).write_text("[]"), "a JSON object was expected"),
    "no section": (
        lambda folder, drafter: of_config(lambda values: values.pop(drafter.method.name))(folder, drafter),
        "no section '{name}'",
    ),
    "unknown key": (of_section(lambda own: own.update(colour="red")), "unknown key 'colour'"),
    "another format version": (of_section(lambda own: own.update(version=9)), "{name}.version is 9"),
    "no format version": (of_section(lambda own: own.pop("version")), "{name}.version is None"),
    "another architecture": (of_config(lambda values: values.update(architectures=["X"])), "architectures is ['X']"),
    "unknown engine key": (of_config(lambda values: values.update(colour="red")), "unknown key 'colour'"),
    "missing engine key": (of_config(lambda values: values.pop("dtype")), "the key 'dtype' is missing"),
    "sizes at odds": (of_config(lambda values: values.update(hidden_size=9)), f"hidden_size is 9, but {SIZE} was"),
    "no weights": (lambda folder, _: (folder / WEIGHTS).unlink(), "model.safetensors is missing"),
    "truncated weights": (truncated, "damaged or not a safetensors file"),
    "foreign weights": (lambda folder, _: (folder / WEIGHTS).write_bytes(b"PK\3\4" * 9), "damaged"),
    "missing tensor": (of_weights(lambda weights, name: weights.pop(name)), "'{tensor}' is missing"),
    "extra tensor": (of_weights(lambda weights, _: weights.update(extra=torch.ones(1))), "'extra' is unknown"),
    "wrong shape": (
        of_weights(lambda weights, name: weights.update({name: weights[name][:-1].clone()})),
        "the tensor '{tensor}' has shape",
    ),
    "not a number": (of_weights(lambda weights, name: weights[name].fill_(torch.nan)), "'{tensor}' holds values that"),
    "infinite": (of_weights(lambda weights, name: weights[name].fill_(torch.inf)), "'{tensor}' holds values that"),
    "integers": (
        of_weights(lambda weights, name: weights.update({name: weights[name].long()})),
        "'{tensor}' is of type torch.int64",
    ),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "drafter"


def saved(example: str, folder: Path) -> Drafter:
    drafter = EXAMPLES[example]()
    save_drafter(folder, drafter, {"purpose": "tests"})
    return drafter


def assert_refused(folder: Path, expected: str, target: Target = FITTING) -> None:
    """One sentence that names the directory."""
    with pytest.raises(MTPCError) as caught:
        load_drafter(folder, target)
    message = str(caught.value)
    assert expected in message
    assert str(folder) in message
    assert "\n" not in message
    assert message.endswith(".")


@examples
def test_a_broken_directory_gets_one_sentence(tmp_path: Path, example: str, subtests: pytest.Subtests) -> None:
    drafter = saved(example, whole := tmp_path / "whole")
    for number, (case, (breaks, expected)) in enumerate(BROKEN.items()):
        if "{tensor}" in expected and not drafter.tensors():
            continue  # there is none to break
        folder = shutil.copytree(whole, tmp_path / str(number))
        with subtests.test(case):
            breaks(folder, drafter)
            tensor = max(drafter.tensors(), default="")
            assert_refused(folder, expected.format(name=drafter.method.name, tensor=tensor))


@examples
def test_a_key_that_holds_keys_is_read_as_strictly(folder: Path, example: str) -> None:
    drafter = saved(example, folder)
    section = json.loads((folder / CONFIG).read_text())[drafter.method.name]
    for key in (key for key, value in section.items() if isinstance(value, dict)):
        of_section(lambda own, key=key: own.update({key: {}}))(folder, drafter)
        assert_refused(folder, f"the section '{drafter.method.name}' of")
        of_section(lambda own, key=key: own.update({key: {**section[key], "colour": "red"}}))(folder, drafter)
        assert_refused(folder, "'colour'")
        of_section(lambda own, key=key: own.update({key: section[key]}))(folder, drafter)


@examples
@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (Target(SIZE + 1, VOCAB), f"hidden_size {SIZE}, but the target has {SIZE + 1}"),
        (Target(SIZE, VOCAB + 1), f"vocab_size {VOCAB}, but the target has {VOCAB + 1}"),
    ],
    ids=["hidden size", "vocabulary"],
)
def test_another_target_is_refused(folder: Path, example: str, target: Target, expected: str) -> None:
    saved(example, folder)
    assert_refused(folder, expected, target)


@examples
def test_a_drafter_comes_back_bit_by_bit_in_bfloat16(folder: Path, example: str) -> None:
    drafter = saved(example, folder)
    loaded = load_drafter(folder, FITTING, dtype=torch.bfloat16)
    assert loaded.config == drafter.config
    assert loaded.method is method_of(folder)
    assert not loaded.training
    assert not any(parameter.requires_grad for parameter in loaded.parameters())
    kept, before = loaded.state_dict(), drafter.state_dict()
    assert list(kept) == list(before)
    assert all(torch.equal(kept[name], tensor.to(torch.bfloat16)) for name, tensor in before.items())
    assert json.loads((folder / "provenance.json").read_text())["purpose"] == "tests"
    again = folder.parent / "again"
    save_drafter(again, loaded, {})
    assert all((again / name).read_bytes() == (folder / name).read_bytes() for name in (CONFIG, WEIGHTS))


@examples
def test_nothing_of_the_target_is_stored(folder: Path, example: str) -> None:
    """An autoregressive part shares the engine's embedding and output head, unless it has its own."""
    drafter = saved(example, folder)
    names = {drafter.method.tensor_name(name) for name in drafter.state_dict() if name.startswith("autoregressive.")}
    names = {name for name in names if not name.startswith("serial.own.")}
    assert all(VOCAB not in tensor.shape for name, tensor in load_file(folder / WEIGHTS).items() if name in names)


@pytest.mark.parametrize("name", ["byte-mtpc-hmm-n8", "smollm2-fastmtp", "smollm2-gumiho"])
def test_directories_that_ship_load_and_would_be_written_the_same(name: str) -> None:
    folder = ROOT / "weights" / name
    drafter = load_drafter(folder, dtype=torch.bfloat16)
    assert drafter.method.to_json(drafter.config) == json.loads((folder / CONFIG).read_text())
    stored, tensors = load_file(folder / WEIGHTS), drafter.tensors()
    assert set(stored) == set(tensors)
    assert all(torch.equal(tensors[name], tensor) for name, tensor in stored.items())


def test_what_is_no_drafter(tmp_path: Path) -> None:
    with pytest.raises(MTPCError, match="is not a directory"):
        load_drafter(tmp_path / "nowhere")
    (tmp_path / CONFIG).write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    assert recognize(tmp_path) is None
    with pytest.raises(
        MTPCError,
        match="describes no drafter: it has no section 'mtpc', 'bytecircuit', 'fastmtp', 'gumiho', 'medusa', "
        "'copying', 'pair', 'hybrid'",
    ):
        method_of(tmp_path)
