"""`mtpc vocab build`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from mtpc.lab.options.numbers import MOST_TOKENS, Bounds, NumberList
from mtpc.lab.options.paths import file_to_write, model_folder

app = typer.Typer(help="Draft vocabularies: which tokens a drafter proposes.", no_args_is_help=True)


@app.callback()
def options() -> None:
    """Draft vocabularies: which tokens a drafter proposes."""


@app.command("build")
def build(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", callback=file_to_write, help="The .json file that is written.")
    ],
    target: Annotated[
        Path,
        typer.Option(callback=model_folder, help="The target whose tokens are counted: a folder or a Hugging Face id."),
    ],
    data: Annotated[Path | None, typer.Option(help="Conversations, as `mtpc distill` writes them.")] = None,
    text: Annotated[
        list[str] | None, typer.Option(help="A language and a UTF-8 file, as in --text german=faust.txt.")
    ] = None,
    sizes: Annotated[
        Sequence[int],
        typer.Option(metavar="8192,...", parser=NumberList(Bounds(1, MOST_TOKENS)), help="Sizes to show the coverage of."),
    ] = (8192, 16384, 32768),
) -> None:
    """Rank a target's tokens by how often each language uses them.

    One file holds all languages; how many tokens of it are drafted is chosen when serving. The answers of
    conversations count under the language of their kind (English, Spanish, French, source code), text files under the
    language that is named. Shown is the share of the tokens of held-out conversations that a draft vocabulary holds.

    Examples:
    mtpc vocab build runs/vocabulary.json --target runs/smollm2 --data runs/distilled

    mtpc vocab build runs/vocabulary.json --target runs/smollm2 --text english=emma.txt --text french=candide.txt
    """
    from mtpc.errors import MTPCError
    from mtpc.files import provenance
    from mtpc.lab.console import console
    from mtpc.lab.targets.folder import stated_sizes
    from mtpc.lab.text.chat_template import ChatTemplate
    from mtpc.lab.text.conversations import check_tokens, file_digest, read_conversations
    from mtpc.lab.text.count_vocabulary import answers_by_language, build_rankings, coverage, file_tokens

    if data is None and not text:
        raise MTPCError("give --data, --text or both: there is nothing to count.")
    sizes_of_target = stated_sizes(target)
    if sizes_of_target is None:
        raise MTPCError(f"{target / 'config.json'} does not say how many tokens the target has (vocab_size).")
    vocab_size, template = sizes_of_target.vocab_size, ChatTemplate(target)
    conversations = [] if data is None else list(read_conversations(data))
    check_tokens(conversations, vocab_size)
    texts = list(answers_by_language(conversation for conversation in conversations if not conversation.heldout))
    for option in text or ():
        language, equals, path = option.partition("=")
        if not language or not equals:
            raise MTPCError(f"--text is {option!r}, but a language and a file were expected, as in german=faust.txt.")
        texts += [(language, tokens) for tokens in file_tokens(Path(path), template.tokenizer)]
    rankings = build_rankings(texts, vocab_size, always=[template.end])
    digest = None if data is None else file_digest(data)
    chosen = tuple(size for size in sizes if size <= vocab_size)
    rankings.save(file, provenance.collect(target=target.name, data_sha256=digest, texts=list(text or ())))
    table = Table("language", "tokens counted", "different ones", title=str(file))
    for name, ranking in rankings.languages.items():
        table.add_row(name, f"{sum(ranking.counts or ()):,}", f"{len(ranking.tokens):,}")
    terminal = console()
    terminal.print(table)
    heldout = answers_by_language(conversation for conversation in conversations if conversation.heldout)
    shares = coverage(rankings, heldout, chosen)
    if shares and chosen:
        terminal.print(coverage_table(shares))


def coverage_table(shares: dict[str, dict[tuple[str, int], float]]) -> Table:
    """A row for each language of text with each language's draft vocabulary, a column for each size."""
    table = Table("text", "draft vocabulary", title="share of held-out tokens in each draft vocabulary")
    for size in dict.fromkeys(size for row in shares.values() for _, size in row):
        table.add_column(f"{size:,}", justify="right")
    for text, row in shares.items():
        for language in dict.fromkeys(language for language, _ in row):
            table.add_row(text, language, *(f"{share:.1%}" for (name, _), share in row.items() if name == language))
        table.add_section()
    return table
