"""Samples and verifies drafts of vLLM's own drafter with the kernels of Model Runner V2; prints emitted tokens as JSON.

This is a separate script, because Triton decides when it is imported whether it interprets kernels.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from v2_on_cpu.interpreter import register
from vllm import distributed
from vllm.model_executor.layers import vocab_parallel_embedding
from vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils import rejection_sample

from tests.vllm_mtpc.native.test_speculator import TEXTS, VOCABULARIES, VOCABULARY, extended

ROWS, STEPS = 2, 30
HEAT = torch.tensor([0.5, 2.0])


def loop() -> Any:
    """A request of each language, at temperatures of their own."""
    register()
    for name, value in (("rank", 0), ("world_size", 1)):
        for module in (vocab_parallel_embedding, distributed):
            setattr(module, f"get_tensor_model_parallel_{name}", lambda value=value: value)
    made = extended(setattr, VOCABULARIES, copies=False)
    made.temperature[:ROWS] = HEAT
    for name, text in TEXTS.items():
        made.req_states.add_request(name, len(text), text, 0, 10)
    return made


def first_emitted(drafts: Tensor, stated: Tensor, target: Tensor, step: int) -> Tensor:
    """The first token of each request after verification, int64 [B]."""
    rows = torch.arange(ROWS)
    each = rows.repeat_interleave(2)
    tokens, _ = rejection_sample(
        target.repeat_interleave(2, 0) / HEAT[each, None],
        stated,
        torch.stack([torch.zeros_like(drafts), drafts], 1).flatten(),
        torch.arange(0, 2 * ROWS + 1, 2, dtype=torch.int32),
        torch.arange(2 * ROWS) + 2 * step,
        rows,
        each,
        torch.arange(2).repeat(ROWS),
        HEAT,
        rows + 11,
        num_speculative_steps=1,
    )
    return tokens[:, 0]


def main() -> None:
    """Print the target's distributions and the emitted tokens.

    honest: drafts are stated as they were drawn.  forgetful: tokens that cannot be drafted are stated as if they could.
    """
    made, generator = loop(), torch.Generator().manual_seed(0)
    states, target = (0.05 * torch.randn(ROWS, size, generator=generator) for size in (4, VOCABULARY))
    whole = states @ made.model.lm_head.weight[:VOCABULARY].T
    honest, forgetful = [], []
    for step in range(STEPS):
        batch = SimpleNamespace(num_reqs=ROWS, idx_mapping=torch.arange(ROWS))
        given = states, None, torch.zeros(ROWS, dtype=torch.int32), None, None, None, made.temperature, made.seeds
        made.position = step
        drafts = made.propose(batch, None, None, *given, is_profile=True)[:, 0]
        stated = made.draft_logits[:ROWS, :1].clone()
        honest.append(first_emitted(drafts, stated, target, step).tolist())
        stated = torch.where(stated.isneginf(), whole[:, None], stated)
        forgetful.append(first_emitted(drafts, stated, target, step).tolist())
    print(
        json.dumps({"target": (target / HEAT[:, None]).softmax(-1).tolist(), "honest": honest, "forgetful": forgetful})
    )


if __name__ == "__main__":
    main()
