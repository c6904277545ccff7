"""Tiny random targets with subword tokenizers, and draft models with other tokenizers that are now and then right."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from tokenizers import processors
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from mtpc.draft_model.pair import PairPart
from mtpc.lab.convert.pair import convert_pair
from mtpc.methods.pair import Pair, Rule
from mtpc.vocabulary.token_bytes import TokenBytes, token_bytes
from tests.support.random_native import make_draft_model as make_noisy
from tests.support.small_tokenizers import byte_level, byte_target, composed, sentence_piece

# Of the target, and of the draft model.
TOKENIZERS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "subwords by SentencePiece": (byte_level, sentence_piece),
    "bytes by subwords": (byte_target, byte_level),
    "SentencePiece by subwords after a beginning": (sentence_piece, lambda: with_beginning(composed())),
    "subwords by the same": (byte_level, byte_level),
}
SHARPNESS = 12.0  # as of `random_models`
PADDING = 3  # rows of an output head that are no token


def make_text_target(folder: Path, tokenizer: Any, seed: int = 0) -> Path:
    """A Llama of two layers with this tokenizer, float32."""
    torch.manual_seed(seed)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 2, "num_key_value_heads": 1}
    ends = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "tie_word_embeddings": False}
    model = LlamaForCausalLM(
        LlamaConfig(
            **sizes, **ends, vocab_size=len(tokenizer) + PADDING, num_hidden_layers=2, max_position_embeddings=1024
        )
    )
    with torch.no_grad():
        model.lm_head.weight.mul_(SHARPNESS)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@torch.no_grad()
def make_draft_model(folder: Path, target: Path, tokenizer: Any, seed: int = 0, noise: float = 0.5) -> Path:
    """The target with other tokens.

    A token is read as the last token of the target in it, and written as likely as the first one. With as much noise
    as is given, by the standard deviation of each.
    """
    torch.manual_seed(seed)
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    own, theirs = token_bytes(tokenizer), token_bytes(AutoTokenizer.from_pretrained(target))
    for module, last in ((model.get_input_embeddings(), True), (model.get_output_embeddings(), False)):
        rows = module.weight.data
        mixed = rows[related(own, theirs, last)] + noise * rows.std() * torch.randn(len(own.tokens), rows.shape[1])
        padding = torch.zeros(PADDING, rows.shape[1])
        module.weight.data = torch.cat([mixed, padding])
    model.config.vocab_size = model.vocab_size = len(own.tokens) + PADDING
    model.config.eos_token_id = model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@torch.no_grad()
def make_permuted(folder: Path, model: Path, padding: int, seed: int = 0) -> tuple[Path, Tensor]:
    """A model with its tokens in another order, and its tokenizer likewise.

    Args:
        folder: Folder to write.
        model: A model whose tokenizer is byte-level.
        padding: Rows without a token, behind all others.
        seed: Of the order.

    Returns:
        The folder, and the token of ``model`` for each of its tokens, int64.
    """
    torch.manual_seed(seed)
    made: PreTrainedModel = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    described = json.loads((model / "tokenizer.json").read_text())
    names = described["model"]["vocab"] | {each["content"]: each["id"] for each in described["added_tokens"]}
    order = torch.randperm(len(names))
    place = {number: position for position, number in enumerate(order.tolist())}
    described["model"]["vocab"] = {name: place[number] for name, number in names.items()}
    for each in described["added_tokens"]:
        each["id"] = place[each["id"]]
    tied = made.config.tie_word_embeddings
    for module in (made.get_input_embeddings(), *(() if tied else (made.get_output_embeddings(),))):
        rows = module.weight.data
        module.weight.data = torch.cat([rows[order], 0.1 * torch.randn(padding, rows.shape[1])])
    made.tie_weights()
    ends = {f"{each}_token_id": place.get(getattr(made.config, f"{each}_token_id")) for each in ("bos", "eos", "pad")}
    made.config.update({"vocab_size": len(names) + padding, **ends})
    made.generation_config.update(**ends)
    made.vocab_size = made.config.vocab_size
    made.save_pretrained(folder)
    AutoTokenizer.from_pretrained(model).save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(described))
    return folder, order


class Permuted(NamedTuple):
    """A target, and what drafts for it.

    Attributes:
        target: Folder of the target, which generates no padding.
        plain: A draft model in the target's order that is often right.
        converted: The same, after its tokens got another order and `convert_pair` the target's.
        control: The same in the other order, which it hides.
    """

    target: Path
    plain: Path
    converted: Path
    control: Path


def make_permuted_pair(folder: Path) -> Permuted:
    """Write a target and draft models for it into a folder."""
    target = make_text_target(folder / "target", byte_level())
    weights = load_file(target / "model.safetensors")
    weights["lm_head.weight"][-PADDING:] = 0
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    plain = make_noisy(folder / "plain", target)
    draft, _ = make_permuted(folder / "draft", plain, PADDING)
    found = convert_pair(str(draft), target, folder / "converted", byte_level().encode("The quick brown fox"))
    assert found.method == "same"
    control = shutil.copytree(draft, folder / "control")
    byte_level().save_pretrained(control)
    return Permuted(target, plain, found.folder, control)


def related(own: TokenBytes, target: TokenBytes, last: bool) -> Tensor:
    """The target's longest token at one end of each token; 0 for those that have none."""
    found, ids = target.by_bytes(), []
    for token in own.tokens:
        text = token or b""
        parts = [text[place:] if last else text[: len(text) - place] for place in range(len(text))]
        ids.append(next((found[part] for part in parts if part in found), 0))
    return torch.tensor(ids)


def make_pair(
    folder: Path,
    target: Path,
    translation: Rule | None,
    seed: int = 0,
    tokenizer: Any = None,
    noise: float = 0.5,
    **settings: Any,
) -> Path:
    """A drafter checkpoint and its draft model; settings: further keys of its section."""
    tokenizer = byte_level() if tokenizer is None else tokenizer
    draft = make_draft_model(folder.with_name(f"{folder.name}-draft-model"), target, tokenizer, seed, noise)
    ids = AutoTokenizer.from_pretrained(target).encode("The text that the overlap is measured on.")
    convert_pair(str(draft), target, folder, ids, translation, **settings)
    return folder


def make_byte_pair(folder: Path, target: Path, translation: Rule) -> Path:
    """For the byte-level target that ships, which itself reads other tokens, most of them bytes: it is often right."""
    return make_pair(folder, target, translation, tokenizer=sentence_piece(), noise=0.1)


def load_pair(folder: Path, target: Path, device: str = "cpu") -> PairPart:
    """As an engine loads it, on a device."""
    part = Pair().text(folder, Pair().read_config(folder), str(target), torch.device(device))
    assert isinstance(part, PairPart)
    return part


def with_beginning(tokenizer: Any) -> Any:
    """A copy of a tokenizer that puts a beginning of text before every text, as those of Llama and Gemma."""
    made = deepcopy(tokenizer)
    made.add_special_tokens({"bos_token": "<bos>"})
    made.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", made.bos_token_id)]
    )
    return made
