"""What is no target: a folder that transformers would load with random weights, or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from mtpc.errors import MTPCError
from mtpc.lab.targets import frozen
from mtpc.lab.targets.frozen import FrozenTarget, training_dtype
from mtpc.methods.drafter import save_drafter
from tests.support.tiny_models import make_fastmtp, make_target


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_target("llama").save_pretrained(tmp_path / "target")
    return tmp_path / "target"


def refused(folder: Path) -> str:
    with pytest.raises(MTPCError) as caught:
        FrozenTarget(folder)
    message = str(caught.value)
    assert str(folder) in message
    assert "\n" not in message
    assert message.endswith(".")
    return message


def test_a_drafter(tmp_path: Path) -> None:
    save_drafter(tmp_path / "drafter", make_fastmtp(make_target("llama")), {})
    assert "is a FastMTP drafter, but a target was expected" in refused(tmp_path / "drafter")


def test_a_drafter_of_a_family_that_is_not_known(tmp_path: Path) -> None:
    save_drafter(tmp_path / "drafter", make_fastmtp(make_target("llama")), {})
    file = tmp_path / "drafter" / "config.json"
    values = json.loads(file.read_text())
    del values["fastmtp"]
    file.write_text(json.dumps(values | {"architectures": ["EagleOfOthersForCausalLM"]}))
    assert "does not hold the tensor" in refused(tmp_path / "drafter")


def test_weights_that_lack_a_tensor(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights.pop("model.layers.1.mlp.up_proj.weight")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert "'model.layers.1.mlp.up_proj.weight'" in refused(folder)


@pytest.mark.parametrize(
    "change",
    [{"model_type": "nonsense"}, {"hidden_size": 32}, {"num_attention_heads": 3}, {"rope_parameters": 5}],
    ids=str,
)
def test_a_configuration_that_does_not_fit(folder: Path, change: dict[str, object]) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    assert "cannot be loaded as a causal language model" in refused(folder)


def test_no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert "cannot be loaded as a causal language model" in refused(folder)


@pytest.mark.parametrize(("bfloat16", "expected"), [(0.25, torch.bfloat16), (0.8, torch.float32), (2.0, torch.float32)])
def test_training_uses_bfloat16_where_products_are_clearly_faster(
    bfloat16: float, expected: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    class Matrix:
        def __init__(self, seconds: float) -> None:
            self.seconds = seconds

        def __matmul__(self, other: Matrix) -> None:
            nonlocal now
            now += self.seconds

    speeds = {torch.float32: 1.0, torch.bfloat16: bfloat16}
    frozen._cpu_prefers_bfloat16.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(frozen.time, "perf_counter", lambda: now)
        patched.setattr(frozen.torch, "ones", lambda *sizes, dtype: Matrix(speeds[dtype]))
        assert training_dtype("cpu") == expected
    assert training_dtype("cuda") == torch.bfloat16
    frozen._cpu_prefers_bfloat16.cache_clear()
