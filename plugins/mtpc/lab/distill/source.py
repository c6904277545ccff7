"""Questions about source code: functions of the running interpreter's standard library (license PSF-2.0)."""

from __future__ import annotations

import ast
import textwrap
from functools import cache

import numpy as np

from mtpc.lab.text.corpus import python_standard_library

FUNCTION_LINES = range(4, 25)  # length of a function in a question
QUESTIONS = (
    "Explain what this Python function does:",
    "What does this Python function return?",
    "Write a docstring for this function:",
    "Rewrite this function so that it is easier to read:",
    "Write a unit test for this function:",
    "Add type hints to this Python function:",
    "Find a problem in this code and fix it:",
    "Translate this Python function to JavaScript:",
)


@cache
def functions() -> tuple[str, ...]:
    """Return the short functions and methods of the library, without their indentation."""
    blocks = []
    for document in python_standard_library():
        lines = document.text.split("\n")  # as ast counts lines: a form feed does not end one
        for node in ast.walk(ast.parse(document.text)):
            if isinstance(node, ast.FunctionDef) and node.end_lineno is not None:
                block = lines[node.lineno - 1 : node.end_lineno]
                if len(block) in FUNCTION_LINES and _parses(function := textwrap.dedent("\n".join(block))):
                    blocks.append(function)
    return tuple(blocks)


def _parses(function: str) -> bool:
    """Return whether a dedented function parses; some with multi-line strings do not."""
    try:
        ast.parse(function)
    except SyntaxError:
        return False
    return True


def source_code_question(generator: np.random.Generator) -> str:
    """Return a user turn: a random question about a random function."""
    question = QUESTIONS[generator.integers(len(QUESTIONS))]
    code = functions()[generator.integers(len(functions()))]
    return f"{question}\n\n```python\n{code}\n```"
