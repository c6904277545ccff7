"""`mtpc convert medusa`: heads in each published layout against Medusa's own modules, loaded from the same file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from mtpc.draft import DraftContext
from mtpc.errors import MTPCError
from mtpc.lab.cli.main import app
from mtpc.lab.convert.medusa import convert_medusa
from mtpc.lab.evaluation.reference import ReferenceDrafter
from mtpc.methods.drafter import Drafter, load_drafter
from mtpc.parallel.medusa_part import MedusaPart
from mtpc.target_head.shared import SharedHead
from tests.support.random_medusa import HEADS, Layout, publish, vllm_name
from tests.support.tiny_models import SIZE, VOCAB, make_target, target_config

LAYOUTS: tuple[Layout, ...] = ("pt", "safetensors", "shared", "vllm")
PT, CONFIG = "medusa_lm_head.pt", "config.json"


class ResBlock(nn.Module):
    """As in Medusa's code."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(SIZE, SIZE)
        self.act = nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.act(self.linear(x))


@torch.inference_mode()
def published_logits(tensors: dict[str, Tensor], output: Tensor, layers: int, hidden: Tensor) -> Tensor:
    """Of the modules that Medusa's code makes, [B, n, V].

    output: the target's output head, for heads without output layers.
    """
    own = f"0.{layers}.weight" in tensors
    heads = nn.ModuleList()
    for _ in range(HEADS):
        output_layer = [nn.Linear(SIZE, VOCAB, bias=False)] if own else []
        heads.append(nn.Sequential(*(ResBlock() for _ in range(layers)), *output_layer))
    heads.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    logits = torch.stack([head(hidden) for head in heads], 1)
    return logits if own else logits @ output.T


@torch.inference_mode()
def logits_of(drafter: Drafter, hidden: Tensor) -> Tensor:
    """Of the converted heads, [B, n, V]."""
    assert isinstance(drafter.parallel, MedusaPart)
    token = torch.zeros(len(hidden), dtype=torch.int64)
    return drafter.parallel.logits(DraftContext.of_target(hidden, token))[0][:, :, 0]


@pytest.fixture
def target(tmp_path: Path) -> Path:
    make_target("llama").save_pretrained(tmp_path / "target")
    return tmp_path / "target"


def output_of(target: Path) -> Tensor:
    head: Tensor = AutoModelForCausalLM.from_pretrained(target).get_output_embeddings().weight.detach()
    return head


def states(rows: int) -> Tensor:
    return torch.randn(rows, SIZE, generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_converted_heads_compute_what_the_published_modules_do(
    tmp_path: Path, target: Path, layout: Layout, layers: int
) -> None:
    output, hidden = output_of(target), states(6)
    tensors = publish(tmp_path / "source", output, layout, layers)
    converted = convert_medusa(tmp_path / "source", target, tmp_path / "drafter")
    assert converted.config.num_drafts == HEADS  # those of the file, where config.json states fewer
    expected = published_logits(tensors, output, layers, hidden)
    torch.testing.assert_close(logits_of(converted, hidden), expected, atol=1e-4, rtol=1e-4)
    loaded = load_drafter(tmp_path / "drafter")
    assert loaded.config == converted.config
    rounded = {name: tensor.bfloat16() for name, tensor in tensors.items()}
    expected = published_logits(rounded, output.bfloat16().float(), layers, hidden)
    torch.testing.assert_close(logits_of(loaded, hidden), expected, atol=1e-4, rtol=1e-4)


def test_head_i_drafts_the_token_after_that_of_the_target_and_i_others(tmp_path: Path) -> None:
    """States are one-hot, and texts count upwards: what was trained for position t + 2 + i is drafted for it."""
    counting = torch.eye(SIZE)
    config = target_config("llama", vocab_size=SIZE).to_dict()
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / CONFIG).write_text(json.dumps(config))
    publish(tmp_path / "source", counting, layers=0)
    trained = {f"{head}.0.weight": counting.roll(2 + head, 0).half() for head in range(HEADS)}
    torch.save(trained, tmp_path / "source" / PT)
    drafter = convert_medusa(tmp_path / "source", tmp_path / "target", tmp_path / "drafter")
    text = torch.arange(6)[None]  # the last is the one that the target has just sampled
    draft = ReferenceDrafter(drafter, SharedHead(counting, counting)).draft(counting[text[:, :-1]], text[:, 1:], HEADS)
    assert draft.tokens.tolist() == [[6, 7, 8, 9, 10]]


def test_an_output_layer_that_heads_share(tmp_path: Path) -> None:
    """The target's embedding where it has no output head, or that of the file, under both of its names in vLLM."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(target_config("llama", tie_word_embeddings=True))
    model.save_pretrained(tmp_path / "target")
    embedding, hidden = model.get_input_embeddings().weight.detach(), states(3)
    other = torch.randn(VOCAB, SIZE, generator=torch.Generator().manual_seed(3)).half()
    for name, output in (("lm_head.weight", other), ("lm_heads.0.weight", other), (None, embedding)):
        source, out = tmp_path / f"{name}", tmp_path / f"{name}-drafter"
        tensors = publish(source, embedding, "shared")
        if name is not None:
            file = source / "medusa_lm_head.safetensors"
            renamed = {vllm_name(each): tensor for each, tensor in load_file(file).items()}
            file.unlink()
            save_file({**renamed, name: output}, source / "model.safetensors")
            change_config(source, original_lm_head=True)
        expected = published_logits(tensors, output.float(), 1, hidden)
        converted = convert_medusa(source, tmp_path / "target", out)
        torch.testing.assert_close(logits_of(converted, hidden), expected, atol=1e-4, rtol=1e-4)
        shapes = {name: tuple(tensor.shape) for name, tensor in load_file(out / "model.safetensors").items()}
        assert shapes["outputs.0.weight"] == (VOCAB, SIZE)
        assert len(shapes) == 3  # stored once


def test_layers_without_a_bias(tmp_path: Path, target: Path) -> None:
    tensors = publish(tmp_path / "source", output_of(target), "vllm")
    file = tmp_path / "source" / "model.safetensors"
    save_file({name: tensor for name, tensor in load_file(file).items() if not name.endswith("bias")}, file)
    converted = convert_medusa(tmp_path / "source", target, tmp_path / "drafter")
    unbiased = {name: tensor * (not name.endswith("bias")) for name, tensor in tensors.items()}
    expected = published_logits(unbiased, output_of(target), 1, states(3))
    torch.testing.assert_close(logits_of(converted, states(3)), expected, atol=1e-4, rtol=1e-4)


def test_the_commands(tmp_path: Path, target: Path) -> None:
    publish(tmp_path / "source", output_of(target))
    source, out = str(tmp_path / "source"), str(tmp_path / "drafter")
    done = CliRunner().invoke(app, ["convert", "medusa", source, "--target", str(target), "--out", out])
    assert done.exit_code == 0, done.stderr
    summary, vllm, sglang = done.output.splitlines()
    parameters = HEADS * (SIZE * SIZE + SIZE + VOCAB * SIZE)
    assert summary.startswith(f"{out}: {HEADS} heads of {parameters:,} parameters for a target with hidden size {SIZE}")
    assert f'"num_speculative_tokens": {HEADS}' in vllm
    assert "--speculative-algorithm MEDUSA" in sglang
    shown = CliRunner().invoke(app, ["inspect", out], env={"COLUMNS": "160"})
    assert shown.exit_code == 0, shown.stderr
    for piece in (
        "medusa: published Medusa heads",
        "5, independent of each other",
        "1 of each head",
        "one of each head",
    ):
        assert piece in shown.output


def change_config(folder: Path, **changes: Any) -> None:
    values = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(values | changes))


def of_config(**changes: Any) -> Callable[[Path], None]:
    return lambda folder: change_config(folder, **changes)


def of_tensors(change: Callable[[dict[str, Tensor]], object]) -> Callable[[Path], None]:
    def broken(folder: Path) -> None:
        tensors = torch.load(folder / PT)
        change(tensors)
        torch.save(tensors, folder / PT)

    return broken


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "no weights": (lambda folder: (folder / PT).unlink(), "holds no Medusa heads"),
    "no config": (lambda folder: (folder / CONFIG).unlink(), "config.json"),
    "text": (lambda folder: (folder / PT).write_text("weights"), "cannot be read as a file of tensors"),
    "damaged": (
        lambda folder: (folder / "medusa_lm_head.safetensors").write_text("weights"),
        "cannot be read as a file of tensors",
    ),
    "a list": (lambda folder: torch.save([1], folder / PT), "something else than tensors"),
    "no heads": (lambda folder: torch.save({}, folder / PT), "holds 0 heads, but config.json states 2"),
    "fewer heads than stated": (of_config(medusa_num_heads=6), "holds 5 heads, but config.json states 6"),
    "a head too high": (of_tensors(lambda t: t.update({f"{10**9}.1.weight": t["0.1.weight"]})), "at 'heads'"),
    "a tensor too few": (of_tensors(lambda t: t.pop("3.0.linear.weight")), "'3.0.linear.weight' is missing"),
    "an output layer too few": (of_tensors(lambda t: t.pop("3.1.weight")), "'3.1.weight' is missing"),
    "more layers than stated": (
        of_tensors(lambda t: t.update({"0.2.linear.weight": t["0.0.linear.weight"]})),
        "'0.2.linear.weight' is unknown",
    ),
    "a token map": (of_tensors(lambda t: t.update(token_map=torch.ones(3))), "'token_map' is unknown"),
    "the whole model": (
        of_tensors(lambda t: t.update({"model.norm.weight": torch.ones(SIZE)})),
        "'model.norm.weight' is unknown",
    ),
    "another target": (
        of_tensors(lambda t: t.update({"2.1.weight": torch.ones(VOCAB + 1, SIZE)})),
        f"'2.1.weight' has shape [{VOCAB + 1}, {SIZE}], but the target requires [{VOCAB}, {SIZE}]",
    ),
    "not finite": (of_tensors(lambda t: t["1.0.linear.bias"].fill_(torch.nan)), "not finite"),
    "of whole numbers": (of_tensors(lambda t: t.update({"0.1.weight": t["0.1.weight"].long()})), "of type torch.int64"),
    "an unknown key": (of_config(colour="red"), "unknown key 'colour'"),
    "another type": (of_config(medusa_num_layers="1"), "medusa_num_layers"),
    "a scale": (of_config(logit_scale=0.5), "logit_scale"),
    "fewer tokens": (of_config(vocab_size=VOCAB, truncated_vocab_size=9), "truncated_vocab_size must be vocab_size"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_another_checkpoint_is_refused_with_one_sentence(tmp_path: Path, target: Path, name: str) -> None:
    publish(tmp_path / "source", output_of(target))
    change, message = BROKEN[name]
    change(tmp_path / "source")
    with pytest.raises(MTPCError) as caught:
        convert_medusa(tmp_path / "source", target, tmp_path / "drafter")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "drafter").exists()


def test_a_target_without_sizes_or_an_output_head(tmp_path: Path, target: Path) -> None:
    publish(tmp_path / "source", output_of(target), "shared")
    save_file({"other": torch.ones(1)}, target / "model.safetensors")
    with pytest.raises(MTPCError, match=r"holds none of lm_head\.weight, model\.embed_tokens\.weight, which heads"):
        convert_medusa(tmp_path / "source", target, tmp_path / "drafter")
    (target / CONFIG).write_text("{}")
    with pytest.raises(MTPCError, match="has no hidden_size and vocab_size, the sizes of the target"):
        convert_medusa(tmp_path / "source", target, tmp_path / "drafter")
