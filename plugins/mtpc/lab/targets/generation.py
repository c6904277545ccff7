"""Batched generation with a frozen target after prompts of different lengths."""

from __future__ import annotations

from collections.abc import Collection

import torch

from mtpc.lab.targets.frozen import FrozenTarget, sample_tokens


@torch.inference_mode()
def generate(
    target: FrozenTarget,
    prompts: list[list[int]],
    length: int,
    temperature: float,
    end_tokens: Collection[int] = (),
    generator: torch.Generator | None = None,
) -> list[list[int]]:
    """Continue prompts in one batch. Shorter prompts are padded on the left, and the padding is masked.

    Args:
        target: Frozen target.
        prompts: Token ids of each prompt.
        length: Longest output, in tokens.
        temperature: Sampling temperature; 0 is greedy.
        end_tokens: Tokens that end an output.
        generator: Source of random numbers. None uses torch's default one.

    Returns:
        Token ids of each prompt with its output, end token included.
    """
    longest = max(map(len, prompts))
    device = target.device
    tokens = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts], device=device)
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=device)
    texts, running = [list(prompt) for prompt in prompts], [True] * len(prompts)
    state, step, positions = None, tokens, (mask.cumsum(1) - 1).clamp_min(0)
    for _ in range(length):
        out = target.model(
            input_ids=step,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=state,
            use_cache=True,
            logits_to_keep=1,
        )
        state, step = out.past_key_values, sample_tokens(out.logits[:, -1].float(), temperature, generator)
        for row, token in enumerate(step[:, 0].tolist()):
            if running[row]:
                texts[row].append(token)
                running[row] = token not in end_tokens
        if not any(running):
            break
        mask = torch.cat([mask, torch.ones_like(step)], 1)
        positions = positions[:, -1:] + 1
    return texts
