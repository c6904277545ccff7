"""`mtpc vocab build`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from mtpc.lab.options.numbers import MOST_TOKENS, Bounds, NumberList
from mtpc.lab.options.paths import file_to_write, model_folder

app = typer.Typer(help="Build draft vocabularies, and compare two tokenizers.", no_args_is_help=True)


@app.callback()
def options() -> None:
    """Build draft vocabularies, and compare two tokenizers."""


@app.command("build")
def build(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", callback=file_to_write, help="JSON file to write, as vocabulary.json.")
    ],
    target: Annotated[
        Path,
        typer.Option(callback=model_folder, help="Target whose tokens are counted: a folder or a Hugging Face id."),
    ],
    data: Annotated[
        Path | None, typer.Option(help="Folder of conversations that `mtpc distill` wrote, to count their answers.")
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(help="Count a UTF-8 file as a language, as in --text german=faust.txt; may be repeated."),
    ] = None,
    sizes: Annotated[
        Sequence[int],
        typer.Option(
            metavar="8192,...",
            parser=NumberList(Bounds(1, MOST_TOKENS)),
            help="Sizes of the draft vocabulary to print the coverage for.",
        ),
    ] = (8192, 16384, 32768),
) -> None:
    r"""Rank a target's tokens by their frequency in each language, as a draft vocabulary.

    One file holds all languages; the server chooses the number of tokens. Answers of conversations count for the
    language of their category (English, Spanish, French, source code), text files for the language that you give. The
    command prints the share of tokens in held-out conversations that a draft vocabulary covers. It names the languages
    whose text has too few distinct tokens for the smallest of --sizes.

    Examples:
    ```
    mtpc vocab build runs/vocabulary.json --target runs/smollm2 \
        --data runs/distilled

    # Count a text file as a language.
    mtpc vocab build v.json --target runs/smollm2 --text french=candide.txt
    ```
    """
    from mtpc.errors import MTPCError
    from mtpc.files import provenance
    from mtpc.lab.console import console
    from mtpc.lab.targets.folder import stated_sizes
    from mtpc.lab.text.chat_template import ChatTemplate
    from mtpc.lab.text.conversations import check_tokens, file_digest, read_conversations
    from mtpc.lab.text.count_vocabulary import (
        answers_by_language,
        build_rankings,
        coverage,
        file_tokens,
        shortage_notes,
    )

    if data is None and not text:
        raise MTPCError("--data and --text are missing: give one or both, as the text to count.")
    sizes_of_target = stated_sizes(target)
    if sizes_of_target is None:
        raise MTPCError(f"{target / 'config.json'} has no vocab_size, the number of tokens of the target.")
    vocab_size, template = sizes_of_target.vocab_size, ChatTemplate(target)
    conversations = [] if data is None else list(read_conversations(data))
    check_tokens(conversations, vocab_size)
    texts = list(answers_by_language(conversation for conversation in conversations if not conversation.heldout))
    for option in text or ():
        language, equals, path = option.partition("=")
        if not language or not equals:
            raise MTPCError(f"--text is {option!r}, but it must be LANGUAGE=FILE, as in --text german=faust.txt.")
        texts += [(language, tokens) for tokens in file_tokens(Path(path), template.tokenizer)]
    rankings = build_rankings(texts, vocab_size, always=[template.end])
    digest = None if data is None else file_digest(data)
    chosen = tuple(size for size in sizes if size <= vocab_size)
    rankings.save(file, provenance.collect(target=target.name, data_sha256=digest, texts=list(text or ())))
    table = Table("language", "counted tokens", "distinct tokens", title=str(file))
    for name, ranking in rankings.languages.items():
        table.add_row(name, f"{sum(ranking.counts or ()):,}", f"{len(ranking.tokens):,}")
    terminal = console()
    terminal.print(table)
    for note in shortage_notes(rankings, min(chosen, default=0)):
        terminal.print(note, highlight=False)
    heldout = answers_by_language(conversation for conversation in conversations if conversation.heldout)
    shares = coverage(rankings, heldout, chosen)
    if shares and chosen:
        terminal.print(coverage_table(shares))
    terminal.print(f"written to {file}")


@app.command("overlap")
def overlap(
    draft: Annotated[
        Path,
        typer.Argument(callback=model_folder, help="Model that is to draft: a folder or a Hugging Face id."),
    ],
    target: Annotated[
        Path,
        typer.Argument(callback=model_folder, help="Model that is served: a folder or a Hugging Face id."),
    ],
    text: Annotated[
        list[Path] | None, typer.Option(help="UTF-8 file whose tokens are counted. Default: the prompts that ship.")
    ] = None,
) -> None:
    """Compare two tokenizers, and name the method by which a model with the one drafts for a target with the other.

    Tokens are compared by their bytes. The shares of the text in both tokenizers count: rare tokens cost little.

    Example:
    ```
    mtpc vocab overlap runs/smollm2 Qwen/Qwen2.5-Coder-1.5B-Instruct
    ```
    """
    from mtpc.lab.console import console
    from mtpc.lab.text.chat_template import load_tokenizer
    from mtpc.lab.text.count_vocabulary import text_tokens
    from mtpc.lab.text.overlap import REASONS
    from mtpc.lab.text.overlap import overlap as compare

    tokenizer = load_tokenizer(target)
    ids = text_tokens(text, tokenizer)
    found = compare(load_tokenizer(draft), tokenizer, ids)
    table = Table("", "drafter", "target", title=f"{draft.name} drafting for {target.name}")
    table.add_row("tokens", f"{found.draft_tokens:,}", f"{found.target_tokens:,}")
    shares = (f"{found.common:,} ({found.common / size:.1%})" for size in (found.draft_tokens, found.target_tokens))
    table.add_row("in both vocabularies", *shares)
    table.add_row(
        "tokens of the text in both", f"{found.draft_share:.1%}", f"{found.text_share:.1%} of {found.text_tokens:,}"
    )
    terminal = console()
    terminal.print(table)
    terminal.print(f"Method that fits: {found.method} ({REASONS[found.method]}).")


def coverage_table(shares: dict[str, dict[tuple[str, int], float]]) -> Table:
    """Return the coverage: a row for each language of text and of draft vocabulary, a column for each size."""
    table = Table("text", "draft vocabulary", title="share of held-out tokens in each draft vocabulary")
    for size in dict.fromkeys(size for row in shares.values() for _, size in row):
        table.add_column(f"{size:,}", justify="right")
    for text, row in shares.items():
        for language in dict.fromkeys(language for language, _ in row):
            table.add_row(text, language, *(f"{share:.1%}" for (name, _), share in row.items() if name == language))
        table.add_section()
    return table
