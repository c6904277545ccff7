"""The tokenizer inside a GGUF file, as transformers and the engines load it.

transformers reads it too (``AutoTokenizer.from_pretrained(gguf_file=...)``), with the same vocabulary, special tokens
and template. But in release 5.19 it does not ask how text is cut before the merges: SmolLM2's digits stay with the
blanks before them, so that a number after two blanks or an empty line becomes other tokens than the model was trained
on: two ends of line and a 2 are three tokens in place of two. It also forgets the length of the context.
"""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from mtpc.errors import MTPCError
from mtpc.lab.targets.gguf_llama import GGUFFile

CONTROL = 3  # token type of llama.cpp: never produced by text
# How text is cut before the merges, by llama.cpp's name. "smollm" splits every digit, then as GPT-2 does.
PRE_TOKENIZERS = {
    "smollm": lambda: pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    ),
    "gpt-2": lambda: pre_tokenizers.ByteLevel(add_prefix_space=False),
}


def read_tokenizer(file: GGUFFile) -> PreTrainedTokenizerFast:
    """The byte-level BPE of a GGUF file with its special tokens and its chat template.

    Errors: `MTPCError` for a tokenizer of another kind.
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
