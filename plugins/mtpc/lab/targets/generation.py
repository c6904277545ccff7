"""What a frozen target writes after prompts of whatever lengths, in one batch."""

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
    """Each prompt with up to ``length`` tokens that the target goes on with, the first of ``end_tokens`` the last.

    Temperature 0 is greedy.  Shorter prompts are padded on the left, out of the attention's sight.
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
