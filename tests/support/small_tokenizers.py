"""Small tokenizers of every kind, and texts that are hard to tokenize."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

BYTE_TARGET = Path(__file__).parents[2] / "weights" / "byte-target"
PROMPTS = Path(__file__).parents[2] / "plugins" / "mtpc" / "lab" / "text" / "prompts.jsonl"
TEXTS = (
    "The quick brown fox jumps over the lazy dog.  It was the best of times, it was the worst of times;",
    "def area(width: int, height: int) -> int:\n    return width * height  # a comment\n",
    "Der Zug nach München fährt um 17:42 Uhr ab, 你好世界, naïve café, שלום עולם, 👩‍👩‍👧 e\u0301",
)
HOSTILE = (
    "", " ", "   \n\t ", " leading", "trailing ", "e\u0301\u0302", "שלום עולם", "👩‍👩‍👧‍👦🏳️‍🌈", "\x00\x01\x7f", "<0x41>",
    "a\r\nb", "日本語テキスト", "\U0010ffff", "<tool>", "x<tool>y", "\u2028", "\ufeff",
)  # fmt: skip
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def finished(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """With a special token, and one that is added as text."""
    tokenizer.add_tokens([AddedToken("<tool>", special=False, normalized=False)])
    tokenizer.add_special_tokens([AddedToken("<end>", special=True, normalized=False)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")


@cache
def byte_level() -> PreTrainedTokenizerFast:
    """As GPT-2, Llama 3 and Qwen have it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    return finished(tokenizer)


def spaced(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """With SentencePiece's spaces and byte fallback, as Llama 2 and Gemma have them."""
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()],
    )
    return finished(tokenizer)


@cache
def sentence_piece() -> PreTrainedTokenizerFast:
    """Merges of characters; what has no token falls back to bytes."""
    pieces = ["<unk>", *BYTES, "\u2581", "A", "t", "h", "e", "th", "the", "\u2581the"]
    merges = [("t", "h"), ("th", "e"), ("\u2581", "the")]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    return spaced(Tokenizer(models.BPE(vocabulary, merges, byte_fallback=True, unk_token="<unk>")))


@cache
def unigram() -> PreTrainedTokenizerFast:
    """Pieces with scores; what has no token falls back to bytes."""
    pieces = [("<unk>", 0.0), *((byte, -9.0) for byte in BYTES), ("\u2581the", -1.0), ("\u2581", -2.0), ("A", -3.0)]
    return spaced(Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True)))


@cache
def byte_target() -> PreTrainedTokenizerFast:
    """Of the byte-level model that ships."""
    return AutoTokenizer.from_pretrained(BYTE_TARGET)


@cache
def word_piece() -> PreTrainedTokenizerFast:
    """Whole words and how they go on, as BERT has them; it has no token for most bytes."""
    vocabulary = {"[UNK]": 0, "the": 1, "##re": 2}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Whitespace(), decoders.WordPiece()
    return finished(tokenizer)


@cache
def prompts() -> tuple[str, ...]:
    """Prose and code, as the benchmarks have it."""
    return tuple(json.loads(line)["text"] for line in PROMPTS.read_text().splitlines())


@cache
def composed() -> PreTrainedTokenizerFast:
    """Byte-level tokens of words, after characters are composed (NFC), as Qwen has them."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=1500, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(prompts(), trainer)
    return finished(tokenizer)


@cache
def prefixed() -> PreTrainedTokenizerFast:
    """Merges of characters after a space that stands before every text, as Llama 2 and Mistral have them."""
    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = pre_tokenizers.Metaspace()
    learned.train_from_iterator(prompts(), trainers.BpeTrainer(vocab_size=1000, show_progress=False))
    model = json.loads(learned.to_str())["model"]
    pieces = ["<unk>", *BYTES, *model["vocab"]]
    merges = [tuple(pair) for pair in model["merges"]]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = spaced(Tokenizer(models.BPE(vocabulary, merges, byte_fallback=True, unk_token="<unk>")))
    steps = [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    tokenizer.backend_tokenizer.normalizer = normalizers.Sequence(steps)
    return tokenizer


COMPLETE = (byte_level, composed, prefixed, sentence_piece, unigram, byte_target)  # with a token for every byte
