"""A byte-level MiMo target with its MTP layer, random weights, in the layout in which MiMo-7B-RL is published."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from mtpc.data.byte_tokenizer import save_byte_tokenizer
from tests.mtpc.convert.mimo_checkpoint import FASTMTP, write_checkpoint

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
CODE = """from transformers import Qwen2Config


class MiMoConfig(Qwen2Config):
    model_type = "mimo"
"""


def make_mimo_target(folder: Path, plain: Path) -> None:
    """Write the checkpoint, and into ``plain`` the same without the MTP layer, for transformers."""
    weights = write_checkpoint(folder, CONFIG)
    (folder / "configuration_mimo.py").write_text(CODE)
    save_byte_tokenizer(folder)
    trunk = {name: tensor for name, tensor in weights.items() if ".mtp_layers." not in name}
    write_checkpoint(plain, CONFIG | {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}, trunk, shards=1)
    values = json.loads((plain / "config.json").read_text())
    del values["auto_map"]
    (plain / "config.json").write_text(json.dumps(values))
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(folder / file, plain)
