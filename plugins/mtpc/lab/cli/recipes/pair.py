"""`mtpc convert pair`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from mtpc.lab.cli import method_options as options
from mtpc.lab.options.numbers import MOST_DRAFTS
from mtpc.lab.options.paths import new_folder
from mtpc.lab.options.settings import refuse_options


def convert(
    invocation: typer.Context,
    draft: Annotated[
        str, typer.Argument(help="Draft model: a folder, or a Hugging Face id as in owner/name@revision.")
    ],
    target: options.ServedTarget,
    out: Annotated[Path, typer.Option(callback=new_folder, help="New folder for what the engine serves.")],
    method: Annotated[
        Literal["auto", "same", "tli", "slem", "slrs"],
        typer.Option(
            help="Put the model into the target's vocabulary (same), or translate its tokens: by common tokens (tli), "
            "by text (slem) or byte by byte (slrs). auto: same where the target has all its tokens, slrs for a draft "
            "model over bytes, tli where nearly all tokens are common, else slem."
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

    Writes a checkpoint that refers to the draft model, and the digests of both vocabularies. A draft model with the
    target's vocabulary is served by the engines' own draft loops, where --min-confidence, --context and --slots have no
    effect. If its ids or its number of tokens differ from the target's, the command writes a copy with the target's; if
    not, it writes nothing. The last lines are the commands that serve it. The output stays the target's at every
    temperature. Methods TLI, SLEM and SLRS are those of https://arxiv.org/abs/2502.05202.

    Example:
    ```
    mtpc convert pair runs/smollm2 --target runs/qwen --out runs/pair
    ```
    """
    from mtpc.lab.convert.pair import convert_pair
    from mtpc.lab.servers.speculation import serve_commands
    from mtpc.lab.targets.folder import check_folder
    from mtpc.lab.text.chat_template import load_tokenizer
    from mtpc.lab.text.count_vocabulary import text_tokens
    from mtpc.lab.text.overlap import SAME

    if method == SAME:
        refuse_options(invocation, {"min_confidence", "context", "slots"}, "with --method same")
    check_folder(target)
    tokenizer = load_tokenizer(target)
    ids = text_tokens(text, tokenizer)
    converted = convert_pair(
        draft,
        target,
        out,
        ids,
        None if method == "auto" else method,
        num_drafts=num_drafts,
        min_confidence=min_confidence,
        context=context,
        slots=slots,
    )
    shared = converted.overlap
    if converted.folder != out:
        typer.echo(f"{draft} has the token ids of {target.name}: engines serve it as it is, and {out} is not written")
    else:
        how = "in the target's vocabulary" if converted.method == SAME else f"by {converted.method}"
        typer.echo(
            f"{out}: {draft} drafts for {target.name} {how}; {shared.common:,} tokens are in both vocabularies, "
            f"{shared.text_share:.1%} of the text's"
        )
    for command in serve_commands(target, converted.folder, num_drafts):
        typer.echo(command)
