"""How often a target goes on as its text went on before, by the number of tokens that match: `mtpc.copying.table`.

    python benchmarks/make_prompts.py corpus counted.jsonl
    python -m benchmarks.copy_chances --target weights/byte-target --prompts counted.jsonl --out copying.json

A drafter reads the file `copying.json` in its directory.

The target writes on after every prompt; at each of its tokens the longest match is looked up, as a drafter would, and
the token compared with the one that would have been copied.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.optimize import isotonic_regression

from mtpc import provenance
from mtpc.copying.match import continuation, longest_match
from mtpc.evaluation.prompts import prompts_of_file
from mtpc.evaluation.texts import Text, write_texts
from mtpc.targets.frozen import FrozenTarget, default_device

LONGEST = 16


def count(texts: Iterable[Text], longest: int = LONGEST) -> np.ndarray:
    """Tokens that were copied and all tokens, int64 [longest + 1, 2], by the length of the match before them."""
    counts = np.zeros((longest + 1, 2), dtype=np.int64)
    for text in texts:
        tokens = np.array(text.tokens, dtype=np.int32)
        for end in range(text.start, len(tokens)):
            match = longest_match(tokens[:end], longest)
            copied = match.length > 0 and continuation(tokens[:end], match, 1)[0] == tokens[end]
            counts[match.length] += (copied, 1)
    return counts


def chances(counts: np.ndarray) -> list[float]:
    """By the length of the match, from 1 on, and never falling: a longer match is no worse."""
    copied, times = counts[1:, 0], counts[1:, 1]
    fitted = isotonic_regression((copied + 1) / (times + 2), weights=times + 2).x
    return [round(float(chance), 4) for chance in fitted]


def main() -> None:
    """Parse, write, count, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, required=True, help='JSON Lines with the field "text" or "user"')
    parser.add_argument("--count", type=int, default=60, help="prompts of each kind")
    parser.add_argument("--length", type=int, default=128, help="tokens after each prompt, at most")
    parser.add_argument("--longest", type=int, default=LONGEST, help="match that is told from longer ones")
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.8], help="of as many texts each")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    target = FrozenTarget(arguments.target, device=default_device())
    prompts = prompts_of_file(arguments.prompts, arguments.target, arguments.count)
    texts: list[Text] = []
    for temperature in arguments.temperatures:
        written = write_texts(target, prompts, arguments.length, temperature, arguments.seed)
        texts += [text for of_kind in written.values() for text in of_kind]
    counts = count(track(texts, "texts"), arguments.longest)
    table = Table("tokens that match", "times", "copied")
    for length, (copied, times) in enumerate(counts.tolist()):
        table.add_row(str(length), str(times), f"{copied / times:.3f}" if times else "-")
    Console().print(table)
    if arguments.out is not None:
        given = {name: str(value) for name, value in vars(arguments).items()}
        facts = {"chances": chances(counts), "counts": counts.tolist(), "arguments": given}
        arguments.out.write_text(json.dumps({**facts, "provenance": provenance.collect()}, indent=2) + "\n")


if __name__ == "__main__":
    main()
