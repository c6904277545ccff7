"""Drafter directories: a round trip, and one sentence for everything that can be wrong with one."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from mtpc.drafter import Drafter, DrafterConfig, Target, load_drafter, save_drafter
from mtpc.errors import MTPCError

CONFIG = DrafterConfig("btree", 4, 3, 8, 11, leaf_features=4, component_features=2, sum_features=3, trunk_size=5)
FITTING = Target(hidden_size=8, vocab_size=11)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    drafter = Drafter(CONFIG)
    drafter.head.initialise(torch.randn(11, 8))
    save_drafter(tmp_path / "drafter", drafter, {"purpose": "tests"})
    return tmp_path / "drafter"


def test_round_trip(folder: Path):
    drafter = load_drafter(folder, FITTING, dtype=torch.bfloat16)
    assert drafter.config == CONFIG
    assert {parameter.dtype for parameter in drafter.parameters()} == {torch.bfloat16}
    assert json.loads((folder / "provenance.json").read_text())["purpose"] == "tests"
    saved = load_file(folder / "model.safetensors")
    assert all(torch.equal(saved[name], value) for name, value in drafter.state_dict().items())


def edit_config(change: Callable[[dict], None]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        values = json.loads((folder / "config.json").read_text())
        change(values)
        (folder / "config.json").write_text(json.dumps(values))

    return edit


def edit_weights(change: Callable[[dict[str, torch.Tensor]], None]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors")

    return edit


def truncate(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def own(**values: object) -> Callable[[dict], None]:
    return lambda config: config["mtpc"].update(values)


BROKEN = {
    "no config": (lambda folder: (folder / "config.json").unlink(), "config.json is missing"),
    "config not JSON": (lambda folder: (folder / "config.json").write_text("{"), "cannot be read as JSON"),
    "config of something else": (edit_config(lambda c: c.pop("mtpc")), "no section 'mtpc'"),
    "unknown key": (edit_config(own(colour="red")), "unknown key 'colour'"),
    "unknown engine key": (edit_config(lambda c: c.update(rope_theta=1.0)), "unknown key 'rope_theta'"),
    "missing key": (edit_config(lambda c: c["mtpc"].pop("rank")), "the key 'rank' is missing"),
    "wrong type": (edit_config(own(window="8")), "window must be of type int, but is '8'"),
    "unknown circuit": (edit_config(own(circuit="ring")), "unknown circuit 'ring'"),
    "window of zero": (edit_config(own(window=0)), "at least 1"),
    "FF with a rank": (edit_config(own(circuit="ff")), "rank 1, not 3"),
    "no place for the token": (edit_config(own(token_input=True, trunk_size=0)), "token_input needs a trunk_size"),
    "newer format": (edit_config(own(version=9)), "mtpc.version is 9"),
    "another architecture": (edit_config(lambda c: c.update(architectures=["X"])), "architectures is ['X']"),
    "hidden size at odds": (edit_config(lambda c: c.update(hidden_size=9)), "hidden_size is 9, but 8 was expected"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors is missing"),
    "truncated weights": (truncate, "damaged or not a safetensors file"),
    "foreign file": (lambda folder: (folder / "model.safetensors").write_bytes(b"PK\3\4" * 9), "damaged"),
    "missing tensor": (edit_weights(lambda w: w.pop("head.sums.bias")), "'head.sums.bias' is missing"),
    "unknown tensor": (edit_weights(lambda w: w.update(extra=torch.ones(1))), "'extra' is unknown"),
    "wrong shape": (edit_config(own(rank=4)), "has shape"),
    "not a number": (edit_weights(lambda w: w["head.sums.bias"].fill_(torch.nan)), "not finite"),
    "integers": (edit_weights(lambda w: w.update({"head.sums.bias": torch.ones(21).long()})), "floating-point"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_directory_gets_one_sentence(folder: Path, case: str):
    break_it, expected = BROKEN[case]
    break_it(folder)
    with pytest.raises(MTPCError) as caught:
        load_drafter(folder, FITTING)
    message = str(caught.value)
    assert expected in message
    assert str(folder) in message
    assert "\n" not in message
    assert message.endswith(".")


@pytest.mark.parametrize(
    ("target", "expected"),
    [(Target(9, 11), "hidden_size 8, but the target has 9"), (Target(8, 12), "vocab_size 11, but the target has 12")],
)
def test_another_target_is_refused(folder: Path, target: Target, expected: str):
    with pytest.raises(MTPCError, match=expected):
        load_drafter(folder, target)


def test_no_directory(tmp_path: Path):
    with pytest.raises(MTPCError, match="is not a directory"):
        load_drafter(tmp_path / "nowhere")
