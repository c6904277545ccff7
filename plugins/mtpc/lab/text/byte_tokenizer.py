"""Byte-level tokenizer that transformers and the engines load: a token id is a byte value."""

from __future__ import annotations

from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

END_OF_TEXT = 256
PAD = 257
VOCAB_SIZE = 258


def build_byte_tokenizer() -> PreTrainedTokenizerFast:
    """Return a lossless tokenizer: bytes 0..255, then ``<|endoftext|>`` and ``<|pad|>``."""
    vocab = {character: byte for byte, character in bytes_to_unicode().items()}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    end, pad = AddedToken("<|endoftext|>", special=True), AddedToken("<|pad|>", special=True)
    tokenizer.add_special_tokens([end, pad])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=end,
        eos_token=end,
        pad_token=pad,
        clean_up_tokenization_spaces=False,
    )


def save_byte_tokenizer(folder: Path) -> None:
    """Write the tokenizer files.

    Args:
        folder: Folder of a model.
    """
    build_byte_tokenizer().save_pretrained(folder)
