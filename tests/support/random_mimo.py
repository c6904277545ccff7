"""A byte-level MiMo target with its MTP layer, random weights, in the layout in which MiMo-7B-RL is published."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from mtpc.lab.convert.fastmtp import convert_fastmtp
from mtpc.lab.text.byte_tokenizer import save_byte_tokenizer
from tests.mtpc.lab.convert.mimo_checkpoint import FASTMTP, write_checkpoint

END = 256  # the byte tokenizer's end of text
CONFIG = {
    **FASTMTP,
    "vocab_size": 258,
    "hidden_size": 64,
    "head_dim": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 96,
    "max_position_embeddings": 1024,
    "bos_token_id": END,
    "eos_token_id": END,
    "pad_token_id": 257,
}
PLAIN = {key: value for key, value in CONFIG.items() if key != "auto_map"}
PLAIN |= {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
CODE = """from transformers import Qwen2Config


class MiMoConfig(Qwen2Config):
    model_type = "mimo"
"""


class MiMo(NamedTuple):
    """Folders."""

    target: Path  # the checkpoint as published
    plain: Path  # the same without the MTP layer, for transformers
    drafter: Path  # its MTP layer, converted


def make_mimo(folder: Path) -> MiMo:
    """Write all three into a folder."""
    made = MiMo(folder / "mimo", folder / "qwen2", folder / "drafter")
    weights = write_checkpoint(made.target, CONFIG)
    (made.target / "configuration_mimo.py").write_text(CODE)
    trunk = {name: tensor for name, tensor in weights.items() if ".mtp_layers." not in name}
    write_checkpoint(made.plain, PLAIN, trunk, shards=1)
    for target in (made.target, made.plain):
        save_byte_tokenizer(target)
    convert_fastmtp(made.target, made.drafter)
    return made
