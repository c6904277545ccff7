"""The options of `mtpc check-acceptance`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from mtpc.lab.options.names import address
from mtpc.lab.options.numbers import MOST_PROMPTS, MOST_REQUESTS, TEMPERATURE
from mtpc.lab.options.paths import file_to_write, model_folder
from mtpc.lab.text.prompts import SHIPPED


@dataclass(frozen=True)
class CheckAcceptanceOptions:
    """The server, the models that it is compared with, and the requests."""

    url: Annotated[
        str, typer.Argument(callback=address, help="Address of a running vLLM or SGLang server with a drafter.")
    ]
    drafter: Annotated[
        Path,
        typer.Option(
            callback=model_folder, help="Drafter checkpoint that it should draft with: a folder or a Hugging Face id."
        ),
    ]
    target: Annotated[
        Path,
        typer.Option(callback=model_folder, help="Target that it should serve: a folder or a Hugging Face id."),
    ]
    prompts: Annotated[
        Path,
        typer.Option(
            help='JSON Lines file of prompts: "text", or "user" for messages that use the target\'s chat template.',
            show_default="60 prompts of this package, half of them code",
        ),
    ] = SHIPPED
    requests: Annotated[
        int | None, typer.Option(min=1, max=MOST_PROMPTS, help="Number of prompts to send [default: all of the file].")
    ] = None
    length: Annotated[int, typer.Option(min=8, max=4096, help="Tokens of each output.")] = 128
    temperature: Annotated[
        float, typer.Option(parser=TEMPERATURE, metavar="NUMBER", help="Sampling temperature; 0 means greedy.")
    ] = 0
    concurrency: Annotated[int, typer.Option(min=1, max=MOST_REQUESTS, help="Number of concurrent requests.")] = 8
    out: Annotated[Path | None, typer.Option(callback=file_to_write, help="Write all figures to this JSON file.")] = (
        None
    )
