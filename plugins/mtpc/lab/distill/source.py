"""Questions about source code: functions of the running interpreter's standard library (licence PSF-2.0)."""

from __future__ import annotations

import ast
import textwrap
from functools import cache

import numpy as np

from mtpc.lab.text.corpus import python_standard_library

FUNCTION_LINES = range(4, 25)  # of a function that is asked about
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
    """Functions and methods of a few lines each, as they stand in the library, without their indentation."""
    blocks = []
    for document in python_standard_library():
        lines = document.text.split("\n")  # as ast counts them: a form feed ends none
        for node in ast.walk(ast.parse(document.text)):
            if isinstance(node, ast.FunctionDef) and node.end_lineno is not None:
                block = lines[node.lineno - 1 : node.end_lineno]
                if len(block) in FUNCTION_LINES and _parses(function := textwrap.dedent("\n".join(block))):
                    blocks.append(function)
    return tuple(blocks)


def _parses(function: str) -> bool:
    """Not where a text in it that goes over several lines has less indentation than the code."""
    try:
        ast.parse(function)
    except SyntaxError:
        return False
    return True


def source_code_question(generator: np.random.Generator) -> str:
    """A whole user turn: a question and a function."""
    question = QUESTIONS[generator.integers(len(QUESTIONS))]
    code = functions()[generator.integers(len(functions()))]
    return f"{question}\n\n```python\n{code}\n```"
