"""`mtpc convert pair`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from mtpc.lab.options.numbers import MOST_DRAFTS
from mtpc.lab.options.paths import folder_to_write, model_folder


def convert(
    draft: Annotated[
        str, typer.Argument(help="Draft model: a folder, or a Hugging Face id as in owner/name@revision.")
    ],
    target: Annotated[
        Path, typer.Option(callback=model_folder, help="Target to serve: a folder or a Hugging Face id.")
    ],
    out: Annotated[Path, typer.Option(callback=folder_to_write, help="Folder for the drafter checkpoint.")],
    method: Annotated[
        Literal["auto", "tli", "slem", "slrs"],
        typer.Option(
            help="How tokens are translated: by common tokens (tli), by text (slem) or byte by byte (slrs). auto: slrs "
            "for a draft model over bytes, tli where nearly all tokens are common, else slem."
        ),
    ] = "auto",
    num_drafts: Annotated[
        int,
        typer.Option(min=1, max=MOST_DRAFTS, help="Draft tokens per verification step, K, unless a server sets it."),
    ] = 4,
    min_confidence: Annotated[
        float, typer.Option(min=0.0, max=0.99, help="End a draft where it is right with less than this probability.")
    ] = 0.3,
    context: Annotated[
        int, typer.Option(min=64, max=1 << 20, help="Most tokens of a request's text that the draft model reads.")
    ] = 2048,
    slots: Annotated[int, typer.Option(min=1, max=4096, help="Most requests that draft at the same time.")] = 16,
    text: Annotated[
        list[Path] | None, typer.Option(help="UTF-8 file to count tokens in [default: the included prompts].")
    ] = None,
) -> None:
    """Make any small language model a drafter, also one with another tokenizer than the target.

    Writes a checkpoint that refers to the draft model, and the digests of both vocabularies. The output stays the
    target's at every temperature. Methods TLI, SLEM and SLRS are those of https://arxiv.org/abs/2502.05202.

    Example:
    ```
    mtpc convert pair runs/smollm2 --target runs/qwen --out runs/pair
    ```
    """
    from mtpc.lab.convert.pair import convert_pair
    from mtpc.lab.text.chat_template import load_tokenizer
    from mtpc.lab.text.count_vocabulary import sample_tokens

    tokenizer = load_tokenizer(target)
    ids = sample_tokens(text, tokenizer)
    config, shared = convert_pair(
        draft,
        target,
        out,
        ids,
        translation=None if method == "auto" else method,
        num_drafts=num_drafts,
        min_confidence=min_confidence,
        context=context,
        slots=slots,
    )
    typer.echo(
        f"{out}: {draft} drafts for {target.name} by {config.translation}; {shared.common:,} tokens are in both "
        f"vocabularies, {shared.text_share:.1%} of the text's"
    )
