"""The frozen target of training and evaluation: text in, hidden states and next-token distributions out."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from mtpc.errors import MTPCError, first_line
from mtpc.files.target import Target
from mtpc.lab.targets.folder import check_folder
from mtpc.methods import DrafterConfig


class Features(NamedTuple):
    """hidden: [B, T, d] after the final norm; logits: float32 [B, T, V], row t predicts token t + 1."""

    hidden: Tensor
    logits: Tensor


class FrozenTarget:
    """A causal language model in a Hugging Face folder, in inference only.

    dtype: what the model computes in; "auto" is the folder's own.

    Errors: `MTPCError` for a folder without a model, with a damaged one or one that lacks tensors, or with a drafter.
    """

    def __init__(self, folder: Path, *, device: str = "cpu", dtype: torch.dtype | str = torch.float32) -> None:
        check_folder(folder)
        self.folder = folder
        try:
            model, found = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, output_loading_info=True)
        except Exception as error:  # transformers raises whatever a damaged folder leads to
            raise MTPCError(f"{folder} cannot be loaded as a causal language model: {first_line(error)}.") from None
        for name in sorted(found["missing_keys"]):  # transformers would go on with random ones
            raise MTPCError(f"{folder} does not hold the tensor {name!r}, so it is no target, but perhaps a drafter.")
        self.model = model.to(device).eval()
        self.model.requires_grad_(False)
        self.device = torch.device(device)

    @property
    def facts(self) -> Target:
        """What a drafter must fit."""
        config = self.model.config
        return Target(config.hidden_size, config.vocab_size, config.num_hidden_layers)

    def digest(self) -> str:
        """SHA-256 of the folder's configuration and weights."""
        digest = hashlib.sha256()
        for file in sorted(self.folder.glob("*.safetensors")):
            with file.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
        digest.update((self.folder / "config.json").read_bytes())
        return digest.hexdigest()

    @property
    def end_tokens(self) -> frozenset[int]:
        """The tokens that end its texts, each by itself."""
        ends = self.model.generation_config.eos_token_id
        return frozenset() if ends is None else frozenset([ends] if isinstance(ends, int) else ends)

    @property
    def unembedding(self) -> Tensor:
        """The target's own head, float32 [V, d]."""
        return self.model.get_output_embeddings().weight.detach().float()

    @torch.no_grad()
    def hidden(self, tokens: Tensor) -> Tensor:
        """The states after the final norm, [B, T, d], of tokens int64 [B, T], without their logits."""
        states: Tensor = self.model.model(input_ids=tokens.to(self.device), use_cache=False).last_hidden_state
        return states

    @torch.inference_mode()
    def features(self, tokens: Tensor) -> Features:
        """One teacher-forced pass: tokens int64 [B, T]."""
        hidden = self.model.model(input_ids=tokens.to(self.device), use_cache=False).last_hidden_state
        return Features(hidden, self.model.lm_head(hidden).float())


def check_state(name: str, config: DrafterConfig) -> None:
    """Check that a drafter reads the target's last states, the only ones that are computed here.

    name: of the drafter, for the error.

    Errors: `MTPCError` for one that reads a state between the target's layers.
    """
    if config.autoregressive is not None and config.autoregressive.state_below is not None:
        raise MTPCError(
            f"{name} reads a state between the target's layers, which only engines compute: use `mtpc bench`."
        )


def sample_tokens(logits: Tensor, temperature: float, generator: torch.Generator | None = None) -> Tensor:
    """The next token of each row: logits [B, V] -> int64 [B, 1]; temperature 0 is greedy."""
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    return torch.multinomial(torch.softmax(logits / temperature, -1), 1, generator=generator)


def default_device() -> str:
    """Where models run unless something else is said."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def training_dtype(device: torch.device | str) -> torch.dtype:
    """What matrices are multiplied in when a drafter is trained: bfloat16 where that is the faster one."""
    if torch.device(device).type == "cpu" and not torch.cpu._is_amx_tile_supported():
        return torch.float32  # without tiles bfloat16 is half as fast, with instructions of its own (AVX512-BF16) too
    return torch.bfloat16
