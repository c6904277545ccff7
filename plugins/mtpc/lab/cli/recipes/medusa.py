"""`mtpc convert medusa`."""

from __future__ import annotations

import typer

from mtpc.lab.cli import method_options as options


def convert(
    source: options.Published,
    target: options.ServedTarget,
    out: options.ConvertedOut,
) -> None:
    """Convert published Medusa heads (FasterDecoding/medusa-*), in Medusa's own layout or in that of vLLM 0.32.

    Reads config.json and medusa_lm_head.safetensors, medusa_lm_head.pt or model.safetensors, without executing code.
    Heads without output layers get a copy of the target's output head. A checkpoint with another layout, other sizes
    than the target's or unknown entries is rejected. The last lines are the commands that serve it.

    Example:
    ```
    mtpc convert medusa downloads/medusa --target runs/vicuna --out runs/medusa
    ```
    """
    from mtpc.lab.convert.medusa import convert_medusa
    from mtpc.lab.servers.speculation import serve_commands

    drafter = convert_medusa(source, target, out)
    config = drafter.config
    parameters = sum(weight.numel() for weight in drafter.parameters())
    typer.echo(
        f"{out}: {config.num_drafts} heads of {parameters:,} parameters for a target with hidden size "
        f"{config.hidden_size} and vocabulary {config.vocab_size}, {config.num_drafts} draft tokens per step"
    )
    for command in serve_commands(target, out, config.num_drafts):
        typer.echo(command)
