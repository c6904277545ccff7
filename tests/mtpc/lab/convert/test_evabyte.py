"""`mtpc convert evabyte`: the multi-byte heads of EvaByte's layout as independent tokens."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from typer.testing import CliRunner

from mtpc.draft import DraftContext
from mtpc.errors import MTPCError
from mtpc.lab.cli.main import app
from mtpc.lab.convert.evabyte import convert_evabyte
from mtpc.methods.drafter import load_drafter

HEADS, VOCAB, SIZE = 8, 320, 16
# As EvaByte/EvaByte has it, but for the sizes; keys of its layers are cut.
CONFIG: dict[str, Any] = {
    "architectures": ["EvaByteForCausalLM"],
    "attention_class": "eva",
    "auto_map": {"AutoModelForCausalLM": "modeling_evabyte.EvaByteForCausalLM"},
    "chunk_size": 16,
    "hidden_size": SIZE,
    "model_type": "evabyte",
    "norm_add_unit_offset": True,
    "num_pred_heads": HEADS,
    "tie_word_embeddings": False,
    "vocab_size": VOCAB,
    "window_size": 2048,
}
FILES = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def publish(folder: Path) -> Tensor:
    """Write a model of two files; return its heads, [n, V, d]."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    output = torch.randn(HEADS * VOCAB, SIZE, generator=torch.Generator().manual_seed(3)).bfloat16()
    parts = ({"model.embed_tokens.weight": torch.ones(VOCAB, SIZE)}, {"lm_head.weight": output})
    for file, part in zip(FILES, parts, strict=True):
        save_file(part, folder / file)
    files = {name: file for file, part in zip(FILES, parts, strict=True) for name in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    return output.view(HEADS, VOCAB, SIZE)


def test_each_draft_token_has_the_distribution_of_its_head(tmp_path: Path) -> None:
    """Head 0 is the next byte, which the target has sampled; head i drafts the i-th byte after it."""
    heads = publish(tmp_path / "source").double()
    convert_evabyte(tmp_path / "source", tmp_path / "drafter")
    part = load_drafter(tmp_path / "drafter").parallel
    assert part is not None
    states = torch.randn(4, SIZE, generator=torch.Generator().manual_seed(4))
    noise = torch.rand(4, HEADS - 1, generator=torch.Generator().manual_seed(5))
    context = DraftContext.of_target(states, torch.tensor([0, 70, 97, 319]))
    draft = part.draft(context, torch.ones(4), noise, HEADS - 1, "sampled")
    expected = torch.softmax(torch.einsum("nvd,bd->bnv", heads[1:], states.double()), -1)
    assert draft.probs is not None
    torch.testing.assert_close(draft.probs.double(), expected, atol=1e-5, rtol=1e-4)


def test_the_commands(tmp_path: Path) -> None:
    publish(tmp_path / "source")
    out = str(tmp_path / "drafter")
    done = CliRunner().invoke(app, ["convert", "evabyte", str(tmp_path / "source"), out])
    assert done.exit_code == 0, done.stderr
    assert done.output.startswith(f"{out}: a circuit ff of rank 1 and {HEADS * VOCAB * SIZE:,} parameters")
    assert f"vocabulary {VOCAB}, {HEADS - 1} draft tokens per step" in done.output
    shown = CliRunner().invoke(app, ["inspect", out], env={"COLUMNS": "160"})
    assert shown.exit_code == 0, shown.stderr
    for piece in ("8 tokens: the target's next token and 7 draft tokens", "evidence of the circuit", "table", "ff"):
        assert piece in shown.output


def of_config(**changes: Any) -> Callable[[Path], object]:
    return lambda folder: (folder / "config.json").write_text(json.dumps(CONFIG | changes))


def of_output(change: Callable[[Tensor], Tensor]) -> Callable[[Path], None]:
    def broken(folder: Path) -> None:
        tensors = load_file(folder / FILES[1])
        save_file({"lm_head.weight": change(tensors["lm_head.weight"])}, folder / FILES[1])

    return broken


def renamed(folder: Path, names: dict[str, str]) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "another model": (of_config(model_type="llama"), "model_type"),
    "one head": (of_config(num_pred_heads=1), "num_pred_heads"),
    "tied": (of_config(tie_word_embeddings=True), "tie_word_embeddings"),
    "other heads": (of_config(num_pred_heads=4), "has shape [2560, 16], but config.json requires [1280, 16]"),
    "no head": (lambda folder: renamed(folder, {"model.norm.weight": FILES[0]}), "does not hold the tensor 'lm_head"),
    "a bias": (
        lambda folder: renamed(folder, {"lm_head.weight": FILES[1], "lm_head.bias": FILES[1]}),
        "'lm_head.bias' is unknown",
    ),
    "of whole numbers": (of_output(Tensor.long), "of type torch.int64"),
    "not finite": (of_output(lambda output: output.fill_(torch.inf)), "not finite"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_another_model_is_refused_with_one_sentence(tmp_path: Path, name: str) -> None:
    publish(tmp_path / "source")
    change, message = BROKEN[name]
    change(tmp_path / "source")
    with pytest.raises(MTPCError) as caught:
        convert_evabyte(tmp_path / "source", tmp_path / "drafter")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "drafter").exists()
