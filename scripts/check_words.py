"""Checks that pages use the field's words in short sentences.

    python scripts/check_words.py [PAGE...]

Code, pictures and the addresses of links are left out.  Exit code 1 where something is found.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *(ROOT / name / "README.md" for name in ("examples", "weights")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
LONGEST = 30  # words of a sentence
# A private word, as a regular expression, and what the field writes.
WORDS = {
    r"says|said": "generates, states, logs",
    r"pays|pay off": "gives a speedup, is worth it",
    r"beside": "with, alongside, in addition to",
    r"by itself": "automatically",
    r"foretold|foretells?": "predicted, predicts",
    r"verdicts?": "verification",
    r"serial (part|step|layer)s?": "autoregressive part, draft step",
    r"window parts?": "parallel part",
    r"drafter director(y|ies)": "drafter checkpoint",
    r"famil(y|ies)": "draft method",
    r"tokens (a|of a) step": "acceptance length",
    r"plain loop|oracles?": "reference implementation",
    r"touch points?": "integration point",
    r"stand-in": "CPU shim",
    r"mends?": "fix",
    r"backlog": "deferred drafter prefill",
    r"questions of others": "third-party prompts",
    r"to the better": "relative to the best baseline",
    r"so many": "the number, at most",
    r"goes on": "continues",
    r"speed-ups?": "speedup",
    r"quantised|licences?": "American spelling",
    r"the paper": "its name, with a link",
}
# Sentences in which such a word is right: it quotes a heading, a name or a paper that was named before.
EXCEPTIONS = (
    "In the paper, borrowed tokens keep",  # Gumiho's, named in the sentence before
    "against a slow oracle",  # tests/oracles
    "the papers of the draft methods",
)
BLOCK = re.compile(r"^( *)```.*?^\1```$|^::: .*\n(?:    .*\n)*|!\[[^\]]*\]", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"``.*?``|`[^`]*`")
ADDRESS = re.compile(r"\]\([^)]*\)|https?://\S+")
SENTENCE = re.compile(r"(?<=[.!?])\s+")
ITEM = re.compile(r"^\s*([-*] |\d+\. |#+ |>|: |$)")


def pieces(text: str) -> Iterator[str]:
    """The paragraphs, items, headings and cells of a page, without code and addresses."""
    held = ""
    for line in [*ADDRESS.sub("]", CODE.sub("code", BLOCK.sub("", text))).splitlines(), ""]:
        if line.startswith("|"):
            yield from line.strip("|").split("|")
        elif ITEM.match(line):
            yield held
            held = ITEM.sub("", line)
        else:
            held = f"{held} {line}"
    yield held


def problems(text: str) -> Iterator[str]:
    """What is wrong with a page, each in a line."""
    for piece in pieces(text):
        for sentence in SENTENCE.split(piece.strip()):
            if any(exception in sentence for exception in EXCEPTIONS):
                continue
            count = len(re.findall(r"\w[\w'./,-]*", sentence))
            if count > LONGEST:
                yield f"{count} words: {sentence}"
            for word, better in WORDS.items():
                if found := re.search(rf"\b({word})\b", sentence, re.IGNORECASE):
                    yield f"{found[0]!r} ({better}): {sentence}"


def main() -> None:
    """Print what is wrong with the pages."""
    pages = [Path(name) for name in sys.argv[1:]] or PAGES
    found = [f"{page}: {problem}" for page in pages for problem in problems(page.read_text(encoding="utf-8"))]
    print("\n".join(found))
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
