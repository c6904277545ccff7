"""Check that pages, docstrings, comments and configurations use the field's words in short sentences.

    python scripts/check_words.py [FILE...]

Code, pictures and the addresses of links are left out.  Exit code 1 where something is found.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *(ROOT / name / "README.md" for name in ("examples", "weights")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
SOURCES = [
    file for name in ("plugins", "benchmarks", "scripts", "tests") for file in sorted((ROOT / name).rglob("*.py"))
]
CONFIGURATIONS = [file for file in sorted((ROOT / "serve_configs").rglob("*")) if file.suffix in (".yaml", ".yml")]
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
    "against a slow oracle",  # the package of the tests
    "the papers of the draft methods",
)
BLOCK = re.compile(r"^( *)```.*?^\1```$|^::: .*\n(?:    .*\n)*|!\[[^\]]*\]", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"``.*?``|`[^`]*`")
ADDRESS = re.compile(r"\]\([^)]*\)|https?://\S+")
SENTENCE = re.compile(r"(?<=[.!?])\s+")
ARGUMENT = re.compile(r"\n +\w+: ")  # of a docstring's section
INDENTED = re.compile(r"\n\n(?: {4,}[^\n]*\n?)+", re.MULTILINE)  # a command, or a section that was joined above
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


def prose(source: str) -> Iterator[tuple[int, str]]:
    """The docstrings and comments of a Python file, each with its line; names of arguments and tables are left out."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None:
                yield node.body[0].lineno, INDENTED.sub("", ARGUMENT.sub(r"\n\n", text))
    comment, last = "", 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            continued = token.line.strip() == token.string and token.start[0] == last + 1
            if not continued:
                yield last, comment
            comment = f"{comment if continued else ''} {token.string.lstrip('# ')}"
            last = token.start[0]
    yield last, comment


def comments(source: str) -> str:
    """The comments of a YAML file as paragraphs; the first line of a comment at the top is a command."""
    lines = []
    for number, line in enumerate(source.splitlines()):
        before, _, comment = line.partition("#")
        lines.append(comment.strip() if not before.strip() else f"\n{comment.strip()}\n")
        if not number:
            lines.append("")
    return "\n".join(lines)


def problems_of(file: Path) -> Iterator[str]:
    """What is wrong with a page, a Python file or a YAML file."""
    text = file.read_text(encoding="utf-8")
    if file.suffix in (".yaml", ".yml"):
        text = comments(text)
    if file.suffix != ".py":
        yield from (f"{file}: {problem}" for problem in problems(text))
        return
    for line, piece in prose(text):
        yield from (f"{file}:{line}: {problem}" for problem in problems(piece))


def main() -> None:
    """Print what is wrong with the files."""
    files = [Path(name) for name in sys.argv[1:]] or [*PAGES, *SOURCES, *CONFIGURATIONS]
    found = [problem for file in files for problem in problems_of(file)]
    print("\n".join(found))
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
