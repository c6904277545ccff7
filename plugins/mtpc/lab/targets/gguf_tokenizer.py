"""Conversion of the tokenizer in a GGUF file to transformers.

transformers reads it too (``AutoTokenizer.from_pretrained(gguf_file=...)``), with the same vocabulary, special tokens
and template. Its reader is not used here, because in release 5.19 it ignores the pre-tokenizer. SmolLM2's digits then
stay with the blanks before them, so a number after two blanks or an empty line becomes other tokens than in training.
It also drops the context length.
"""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from mtpc.errors import MTPCError
from mtpc.lab.targets.gguf_llama import GGUFFile

CONTROL = 3  # llama.cpp's type of tokens that text never produces
# Pre-tokenizers by llama.cpp's name. "smollm" splits off every digit, then splits as GPT-2.
PRE_TOKENIZERS = {
    "smollm": lambda: pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    ),
    "gpt-2": lambda: pre_tokenizers.ByteLevel(add_prefix_space=False),
}


def read_tokenizer(file: GGUFFile) -> PreTrainedTokenizerFast:
    """Return the byte-level BPE tokenizer of a GGUF file, with special tokens and chat template.

    Args:
        file: Open GGUF file.

    Raises:
        MTPCError: The file has a tokenizer of another kind.
    """
    kind, cut = file.field("tokenizer.ggml.model"), file.field("tokenizer.ggml.pre")
    if kind != "gpt2" or cut not in PRE_TOKENIZERS:
        known = ", ".join(f"gpt2/{name}" for name in PRE_TOKENIZERS)
        raise MTPCError(f"{file.path} holds a tokenizer of kind {kind}/{cut}, but one of {known} was expected.")
    tokens, types = file.field("tokenizer.ggml.tokens"), file.field("tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ")) for merge in file.field("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[cut]()
    tokenizer.decoder = decoders.ByteLevel()
    special = [token for token, kind in zip(tokens, types, strict=True) if kind == CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    named = {
        f"{name}_token": tokens[file.field(f"tokenizer.ggml.{key}_token_id")]
        for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))
        if file.field(f"tokenizer.ggml.{key}_token_id", -1) >= 0
    }
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        **named,
        chat_template=file.field("tokenizer.chat_template"),
        model_max_length=file.field("llama.context_length"),
        clean_up_tokenization_spaces=False,
    )
