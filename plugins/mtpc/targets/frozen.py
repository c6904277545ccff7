"""The frozen target of training and evaluation: text in, hidden states and next-token distributions out."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from mtpc.drafter import Target
from mtpc.errors import MTPCError


class Features(NamedTuple):
    """hidden: [B, T, d] after the final norm; logits: float32 [B, T, V], row t predicts token t + 1."""

    hidden: Tensor
    logits: Tensor


class FrozenTarget:
    """A causal language model in a Hugging Face folder, in inference only.

    dtype: what the model computes in; "auto" is the folder's own.
    """

    def __init__(self, folder: Path, *, device: str = "cpu", dtype: torch.dtype | str = torch.float32) -> None:
        if not (folder / "config.json").is_file():
            raise MTPCError(f"{folder} is not a model folder (no config.json).")
        self.folder = folder
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(device).eval()
        self.model.requires_grad_(False)
        self.device = torch.device(device)

    @property
    def facts(self) -> Target:
        """What a drafter must fit."""
        config = self.model.config
        return Target(hidden_size=config.hidden_size, vocab_size=config.vocab_size)

    @property
    def end(self) -> int | None:
        """The token that ends its texts; None where there is none or more than one."""
        end = self.model.generation_config.eos_token_id
        return end if isinstance(end, int) else None

    @property
    def unembedding(self) -> Tensor:
        """The target's own head, float32 [V, d]."""
        return self.model.get_output_embeddings().weight.detach().float()

    @torch.no_grad()
    def hidden(self, tokens: Tensor) -> Tensor:
        """The states after the final norm, [B, T, d], of tokens int64 [B, T], without their logits."""
        found: Tensor = self.model.model(input_ids=tokens.to(self.device), use_cache=False).last_hidden_state
        return found

    @torch.inference_mode()
    def features(self, tokens: Tensor) -> Features:
        """One teacher-forced pass: tokens int64 [B, T]."""
        hidden = self.model.model(input_ids=tokens.to(self.device), use_cache=False).last_hidden_state
        return Features(hidden, self.model.lm_head(hidden).float())

    @torch.inference_mode()
    def generate(self, prompts: Tensor, length: int, temperature: float) -> Tensor:
        """Continue equally long prompts, int64 [B, P] -> [B, P + length]; temperature 0 is greedy."""
        tokens = prompts.to(self.device)
        state, step = None, tokens
        for _ in range(length):
            out = self.model(input_ids=step, past_key_values=state, use_cache=True, logits_to_keep=1)
            state, step = out.past_key_values, choose(out.logits[:, -1].float(), temperature)
            tokens = torch.cat([tokens, step], 1)
        return tokens


def choose(logits: Tensor, temperature: float, generator: torch.Generator | None = None) -> Tensor:
    """The next token of each row: logits [B, V] -> int64 [B, 1]; temperature 0 is greedy."""
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    return torch.multinomial(torch.softmax(logits / temperature, -1), 1, generator=generator)
