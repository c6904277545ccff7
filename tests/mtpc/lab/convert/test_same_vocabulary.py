"""`mtpc convert pair` with one vocabulary in two orders: the draft model's distribution, in the target's order."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerFast
from typer.testing import CliRunner, Result

from mtpc.draft_model.translation import TokenizerPair
from mtpc.lab.cli.main import app
from mtpc.lab.convert.same_vocabulary import draft_rows, with_rows
from mtpc.methods.pair import Pair
from tests.support.random_pair import PADDING, make_draft_model, make_permuted, make_text_target, with_beginning
from tests.support.small_tokenizers import TEXTS, byte_level

TOKENS = len(byte_level())
# Of the draft model: which layers, whether its output head is its embedding, its rows without a token, how many files.
DRAFTS = (("llama", False, 0, 1), ("llama", True, 9, 1), ("qwen2", True, PADDING, 4), ("qwen2", False, 40, 3))


def convert(draft: Path | str, target: Path, out: Path, *more: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(app, ["convert", "pair", str(draft), "--target", str(target), "--out", str(out), *more])


def load(folder: Path) -> PreTrainedModel:
    """A model as it is stored."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()


def make_model(folder: Path, kind: str, tied: bool, dtype: torch.dtype = torch.float32) -> Path:
    """A model of two layers with the target's tokenizer."""
    torch.manual_seed(2)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 2, "num_key_value_heads": 1}
    ends = {"bos_token_id": None, "eos_token_id": byte_level().eos_token_id, "pad_token_id": None}
    shape = {**sizes, **ends, "num_hidden_layers": 2, "vocab_size": TOKENS, "tie_word_embeddings": tied}
    AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **shape), dtype=dtype).save_pretrained(folder)
    byte_level().save_pretrained(folder)
    return folder


def split(folder: Path, files: int) -> None:
    """Store a model's weights in several files with an index."""
    if files > 1:
        model = load(folder)
        (folder / "model.safetensors").unlink()
        size = sum(each.nbytes for each in model.state_dict().values())
        model.save_pretrained(folder, max_shard_size=size // files)
        assert len(list(folder.glob("model-*.safetensors"))) > 1


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target with padding."""
    return make_text_target(tmp_path_factory.mktemp("same") / "target", byte_level())


@torch.no_grad()
def test_the_same_logits_in_the_targets_order(target: Path, tmp_path: Path) -> None:
    for number, (kind, tied, padding, files) in enumerate(DRAFTS):
        plain = make_model(tmp_path / f"plain-{number}", kind, tied)
        draft, order = make_permuted(tmp_path / f"draft-{number}", plain, padding, seed=number)
        split(draft, files)
        out = tmp_path / f"out-{number}"
        result = convert(draft, target, out)
        assert result.exit_code == 0, result.output
        assert "drafts for target in the target's vocabulary; 401 tokens are in both" in " ".join(result.stdout.split())
        made, own = load(out), load(draft)
        assert made.config.vocab_size == TOKENS + PADDING and made.config.eos_token_id == byte_level().eos_token_id
        assert bool(made.config.tie_word_embeddings) == tied
        theirs, mine = (PreTrainedTokenizerFast.from_pretrained(each)(TEXTS[0]).input_ids for each in (out, draft))
        assert PreTrainedTokenizerFast.from_pretrained(out).get_vocab() == byte_level().get_vocab()
        assert theirs != mine and theirs == order[mine].tolist()
        found, expected = (
            model(input_ids=torch.tensor([ids])).logits[0] for model, ids in ((made, theirs), (own, mine))
        )
        assert torch.equal(found[:, order], expected[:, :TOKENS])
        assert torch.equal(made(input_ids=torch.tensor([theirs])).logits[0], found)
        written = {file.name for file in out.iterdir()}
        assert {file.name for file in draft.glob("*.safetensors*")} == {
            name for name in written if "safetensors" in name
        }
        if files > 1:
            index = json.loads((out / "model.safetensors.index.json").read_text())
            stored = [tensor for file in out.glob("*.safetensors") for tensor in load_file(file).values()]
            assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in stored)
        assert json.loads((out / "provenance.json").read_text())["overlap"]["method"] == "same"


@torch.no_grad()
def test_padding_is_never_drafted(target: Path, tmp_path: Path) -> None:
    """Not even by a draft model that is as unsure as can be, or that finds its own padding the most probable."""
    for dtype in (torch.float32, torch.bfloat16):
        draft, _ = make_permuted(tmp_path / f"draft-{dtype}", target, 5)
        weights = load_file(draft / "model.safetensors")
        weights["lm_head.weight"][TOKENS:] = 30 * weights["lm_head.weight"][:5]
        save_file({name: each.to(dtype) for name, each in weights.items()}, draft / "model.safetensors")
        assert convert(draft, target, tmp_path / f"out-{dtype}").exit_code == 0
        head = load_file(tmp_path / f"out-{dtype}" / "model.safetensors")["lm_head.weight"]
        assert head.dtype == dtype
        for scale in (1e-3, 1.0, 100.0):
            probs = torch.softmax(scale * torch.randn(1000, head.shape[1]) @ head.float().T, -1)
            assert (probs[:, TOKENS:].amax(1) < probs[:, :TOKENS].amax(1)).all()
            assert probs[:, TOKENS:].max() < 1.01 / TOKENS


def test_a_target_with_more_tokens(tmp_path: Path) -> None:
    """A token that the draft model lacks is read as the mean token."""
    target = make_text_target(tmp_path / "target", with_beginning(byte_level()))
    more = AutoTokenizer.from_pretrained(target)
    more.add_special_tokens({"additional_special_tokens": ["<|eot_id|>", "<|vision|>"]})
    more.add_tokens(["<think>"])
    make_text_target(tmp_path / "target", more)
    draft = make_draft_model(tmp_path / "draft", target, byte_level())
    assert convert(draft, tmp_path / "target", tmp_path / "out").exit_code == 0
    rows = draft_rows(TokenizerPair.of(byte_level(), more), len(more) + PADDING)
    ids = {name: int(rows[more.convert_tokens_to_ids(name)]) for name in ("<bos>", "<|vision|>", "<think>", "<end>")}
    assert ids == {"<bos>": -1, "<|vision|>": -1, "<think>": -1, "<end>": byte_level().eos_token_id}
    assert rows[-PADDING:].tolist() == [-1] * PADDING and (rows >= 0).sum() == TOKENS
    embedding = load_file(tmp_path / "out" / "model.safetensors")["model.embed_tokens.weight"]
    own = load_file(draft / "model.safetensors")["model.embed_tokens.weight"]
    torch.testing.assert_close(embedding[more.convert_tokens_to_ids("<think>")], own[:TOKENS].mean(0))


def test_rows_in_any_order() -> None:
    bias = torch.tensor([1.0, 2.0, 30.0])
    assert with_rows(bias, torch.tensor([1, 0])).tolist() == [2.0, 1.0]
    assert with_rows(bias, torch.tensor([-1, 1, 0, -1])).tolist() == [1.5, 2.0, 1.0, 1.5]


def test_settings_that_the_engines_draft_loop_does_not_have(target: Path, tmp_path: Path) -> None:
    for option in ("--min-confidence=0.5", "--context=64", "--slots=4"):
        result = convert(target, target, tmp_path / "out", "--method", "same", option)
        assert result.exit_code == 2
        assert f"{option.partition('=')[0]} has no effect with --method same" in result.output


def test_nothing_to_change(target: Path, tmp_path: Path) -> None:
    for method in ("auto", "same"):
        result = convert(target, target, tmp_path / "out", "--method", method, "--num-drafts", "3")
        assert result.exit_code == 0, result.output
        first, vllm, sglang = result.stdout.splitlines()
        assert first.endswith(f"engines serve it as it is, and {tmp_path / 'out'} is not written")
        assert not (tmp_path / "out").exists()
        config = json.loads(vllm.split("'")[1])
        assert (config["method"], config["model"], config["num_speculative_tokens"]) == ("draft_model", str(target), 3)
        assert f"--speculative-algorithm STANDALONE --speculative-draft-model-path {target}" in sglang
    renamed = shutil.copytree(target, tmp_path / "renamed")  # SGLang compares the names of tokens, special ones as well
    file = renamed / "tokenizer.json"
    file.write_text(file.read_text().replace('"<end>"', '"</s>"'))
    assert convert(renamed, target, tmp_path / "out").exit_code == 0
    assert AutoTokenizer.from_pretrained(tmp_path / "out").get_vocab() == byte_level().get_vocab()


def change_weights(folder: Path, change: Callable[[dict[str, Tensor]], Any]) -> None:
    """Change the tensors of a model."""
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors")


# What is done to the draft model.
WRONG: dict[str, tuple[Callable[[Path], Any], str]] = {
    "quantized": (
        lambda draft: change_weights(
            draft, lambda weights: weights.update({"lm_head.weight": weights["lm_head.weight"].to(torch.int8)})
        ),
        "the tensor 'lm_head.weight' is of type torch.int8, but a floating-point type of at least 16 bits was",
    ),
    "another layout": (
        lambda draft: change_weights(
            draft, lambda weights: weights.update({"lm_head.qweight": weights.pop("lm_head.weight").T.contiguous()})
        ),
        "of 411 rows that are not quantized, but the tensors of this size are model.embed_tokens.weight.",
    ),
    "no embedding": (
        lambda draft: change_weights(
            draft, lambda weights: [weights.pop(name) for name in ("lm_head.weight", "model.embed_tokens.weight")]
        ),
        "but the tensors of this size are none.",
    ),
    "no safetensors": (lambda draft: (draft / "model.safetensors").unlink(), "only safetensors checkpoints"),
    "a token more": (
        lambda draft: (draft / "tokenizer.json").write_text(
            (draft / "tokenizer.json").read_text().replace('"<tool>"', '"<think>"')
        ),
        "but the target's vocabulary lacks 1 of the draft model's tokens, such as b'<think>': use --method auto.",
    ),
}


def test_draft_models_that_cannot_be_reordered(target: Path, tmp_path: Path) -> None:
    for number, (change, sentence) in enumerate(WRONG.values()):
        draft, _ = make_permuted(tmp_path / f"draft-{number}", target, 9)
        change(draft)
        result = convert(draft, target, tmp_path / f"out-{number}", "--method", "same")
        assert result.exit_code == 2, result.output
        (line,) = result.stderr.splitlines()
        assert sentence in line and line.endswith("."), line
        assert not (tmp_path / f"out-{number}" / "config.json").exists()
    assert convert(draft, target, tmp_path / "auto").exit_code == 0  # the last one, by translation
    assert Pair().read_config(tmp_path / "auto").translation == "tli"


def test_no_folder_is_overwritten(target: Path, tmp_path: Path) -> None:
    draft, _ = make_permuted(tmp_path / "draft", target, 9)
    before = (draft / "model.safetensors").read_bytes()
    result = convert(draft, target, draft)
    assert result.exit_code == 2 and "already exists; name a folder that is new or empty." in result.stderr
    assert (draft / "model.safetensors").read_bytes() == before
