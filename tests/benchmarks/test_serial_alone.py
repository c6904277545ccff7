"""Gumiho's layers without its heads: the same layers, and what is none of these drafters is told."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks import serial_alone
from mtpc.lab.training.recipes.byte_target import build_byte_llama
from mtpc.lab.training.settings import ByteTargetConfig
from mtpc.methods.drafter import load_drafter
from tests.support.random_gumiho import make_gumiho


@pytest.fixture
def gumiho(tmp_path: Path) -> Path:
    """A drafter of two serial steps and two heads."""
    model = build_byte_llama(ByteTargetConfig(hidden_size=64, layers=2, heads=1, kv_heads=1)).eval()
    model.save_pretrained(tmp_path / "target")
    return make_gumiho(tmp_path / "gumiho", tmp_path / "target", {"positions": 2, "blocks": 1})


def test_its_layers_are_the_whole_drafters(gumiho: Path, tmp_path: Path) -> None:
    assert serial_alone.main([str(gumiho), str(tmp_path / "alone")]) == 0
    whole, alone = load_drafter(gumiho), load_drafter(tmp_path / "alone")
    assert whole.split(4) == (2, 2) and alone.split(4) == (4, 0)
    assert whole.serial is not None and alone.serial is not None and alone.window is None
    for name, tensor in whole.serial.state_dict().items():
        torch.testing.assert_close(alone.serial.state_dict()[name], tensor, rtol=0, atol=0)


def test_a_drafter_without_heads_is_refused(gumiho: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    serial_alone.main([str(gumiho), str(tmp_path / "alone")])
    assert serial_alone.main([str(tmp_path / "alone"), str(tmp_path / "again")]) == 2
    assert "serial_alone: This is no Gumiho drafter with parallel heads" in capsys.readouterr().err
