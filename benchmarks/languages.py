r"""How soon the draft vocabulary of a text's language is found, and what it costs where there is none.

    python -m benchmarks.languages --target runs/smollm2 --drafter weights/smollm2-fastmtp --answers 5

Texts: language_texts.jsonl beside this file, written for it: ten paragraphs in each of eight languages, and code.
Right is the draft vocabulary of the language, or all tokens where the drafter's vocabulary.json has none for it.
"Before" is a choice among the languages alone, which reads the chat template's own words as well.

With --answers the target goes on greedily after paragraphs, in its chat template and without, and the drafter's
acceptance lengths along that are expected as `mtpc evaluate` does it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, permutations
from pathlib import Path
from statistics import median
from typing import NamedTuple

from rich.console import Console

from benchmarks.arguments import one_sentence
from benchmarks.language_acceptance import acceptance
from mtpc.lab.table import Table
from mtpc.lab.targets.frozen import FrozenTarget, default_device
from mtpc.lab.text.chat_template import ChatTemplate
from mtpc.methods.drafter import load_drafter
from mtpc.vocabulary.formats import read_rankings
from mtpc.vocabulary.language import LanguageDetector
from mtpc.vocabulary.ranking import Rankings
from mtpc.vocabulary.requests import Reading
from mtpc.vocabulary.settings import OWN_FILE
from mtpc.vocabulary.template import read_template
from mtpc.vocabulary.vocabularies import ALL

TEXTS = Path(__file__).parent / "language_texts.jsonl"
LENGTHS = (8, 16, 32, 64)  # tokens read when it is decided
PAIRS = 3  # texts of each two languages that follow one another
NEVER, MARGIN = 1.0, 4.0  # before: a surcharge at which nothing is drafted from all tokens, and the margin then


class Choice(NamedTuple):
    """A detector, and the names of what it chooses."""

    names: tuple[str, ...]
    detector: LanguageDetector

    def along(self, prompt: Sequence[int], rest: Iterable[int] = ()) -> Iterator[str]:
        """What is chosen after the prompt, and after each token that follows it."""
        reading = Reading(self.detector)
        for tokens in (prompt, *([token] for token in rest)):
            reading.read(tokens)
            yield self.names[reading.choose()]


def before_and_now(rankings: Rankings, target: Path) -> dict[str, Choice]:
    """Among the languages alone, and as served, where all languages together may stand for all tokens."""
    names = (*rankings.languages, ALL)
    before = LanguageDetector(rankings, margin=MARGIN, surcharge=NEVER)
    now = LanguageDetector(rankings, read_template(str(target)))
    return {"before": Choice(names, before), "now": Choice(names, now)}


class Decisions:
    """What is chosen for texts: their tokens, by language."""

    def __init__(self, choices: dict[str, Choice], file: Path, template: ChatTemplate) -> None:
        self.choices, self.template = choices, template
        self.texts: dict[str, list[list[int]]] = defaultdict(list)
        for line in file.read_text(encoding="utf-8").splitlines():
            text = json.loads(line)
            self.texts[text["language"]].append(template.encode(text["text"]))
        names = choices["now"].names
        self.right = {language: language if language in names else ALL for language in self.texts}

    def prompt(self, text: list[int], within: bool) -> list[int]:
        """What a user says, in the chat template or alone."""
        return self.template.question(self.template.tokenizer.decode(text)) if within else text

    def accuracy(self) -> Table:
        """Right decisions after so many tokens of each text."""
        rows = []
        for within in (False, True):
            for language, texts in self.texts.items():
                right, cells = self.right[language], []
                for choice in self.choices.values():
                    for length in LENGTHS:
                        prompts = (self.prompt(text[:length], within) for text in texts)
                        cells.append(str(sum(next(choice.along(prompt)) == right for prompt in prompts)))
                rows.append([f"{language}, in the template" if within else language, right, *cells])
        columns = [f"{name}, {length}" for name in self.choices for length in LENGTHS]
        return Table("Right decisions, of ten, after so many tokens", ["text", "right", *columns], rows)

    def delays(self) -> Table:
        """Tokens of another language until a text drafts from what is right for it, after 64 of one."""
        delays: dict[str, list[int]] = defaultdict(list)
        kinds = {language: "all tokens" if right == ALL else "a language" for language, right in self.right.items()}
        for first, second in permutations(self.texts, 2):
            right = self.right[second]
            for one, other in list(zip(self.texts[first], self.texts[second], strict=True))[:PAIRS]:
                if self.right[first] != right:
                    chosen = [*self.choices["now"].along(one[:64], other), right]
                    delays[f"{kinds[first]} to {kinds[second]}"].append(chosen.index(right))
        rows = [
            [name, str(len(found)), f"{median(found):.0f}", str(sorted(found)[int(0.9 * len(found))])]
            for name, found in delays.items()
        ]
        return Table("After a change", ["from", "texts", "tokens until right: median", "of nine in ten, at most"], rows)

    def flapping(self) -> Table:
        """How often the choice changes within a text of one language."""
        rows = []
        for language, texts in self.texts.items():
            cells = []
            for choice in self.choices.values():
                steps = [list(choice.along(text[:16], text[16:])) for text in texts]
                changes = sum(one != other for chosen in steps for one, other in pairwise(chosen))
                cells.append(f"{100 * changes / sum(map(len, steps)):.1f}")
            rows.append([language, *cells])
        return Table("Changes in 100 tokens of one language", ["text", *self.choices], rows)


@one_sentence
def main() -> None:
    """Decide, answer, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--drafter", type=Path, required=True, help="with a vocabulary.json of several languages")
    parser.add_argument("--answers", type=int, default=0, help="in each language (default: %(default)s)")
    parser.add_argument("--max-tokens", type=int, default=64, help="of an answer (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="a file for the tables, as Markdown")
    given = parser.parse_args()
    target = FrozenTarget(given.target, device=default_device())
    rankings = read_rankings(given.drafter / OWN_FILE, target.facts.vocab_size)
    decisions = Decisions(before_and_now(rankings, given.target), TEXTS, ChatTemplate(given.target))
    tables = [decisions.accuracy(), decisions.delays(), decisions.flapping()]
    if given.answers:
        prompts = {
            f"{language}, {'answered' if within else 'gone on with'}": [
                decisions.prompt(text if within else text[: LENGTHS[-1]], within) for text in texts[: given.answers]
            ]
            for within in (True, False)
            for language, texts in decisions.texts.items()
        }
        along = {name: choice.along for name, choice in decisions.choices.items()}
        drafter = load_drafter(given.drafter, target.facts)
        tables.append(acceptance(target, drafter, rankings, prompts, along, given.max_tokens))
    for table in tables:
        Console(width=180).print(table.to_rich())
    if given.out is not None:
        given.out.write_text("\n".join(table.to_markdown() for table in tables))


if __name__ == "__main__":
    sys.exit(main())
