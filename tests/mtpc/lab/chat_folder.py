"""A folder with a byte-level tokenizer and a chat template: the files of a chat model without its weights."""

from __future__ import annotations

from pathlib import Path

from mtpc.lab.text.byte_tokenizer import END_OF_TEXT, VOCAB_SIZE, build_byte_tokenizer
from mtpc.lab.training.recipes.byte_target import build_byte_llama
from mtpc.lab.training.settings import ByteTargetConfig

END = END_OF_TEXT
VOCAB = VOCAB_SIZE
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}<|endoftext|>\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
OPENING, ASKING = "user: ", "<|endoftext|>\nassistant: "


def make_chat_folder(folder: Path, template: str | None = TEMPLATE) -> Path:
    """The tokenizer, its template and the configuration of a byte-level model."""
    tokenizer = build_byte_tokenizer()
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    build_byte_llama(ByteTargetConfig(hidden_size=64, layers=1, heads=1, kv_heads=1)).config.save_pretrained(folder)
    return folder


def text_of(ids: list[int]) -> str:
    """The text of byte ids, special tokens left out."""
    return bytes(i for i in ids if i < END).decode()
