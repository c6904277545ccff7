"""Prompts that every Python brings along: English prose and source code from its own library."""

from __future__ import annotations

import builtins
import inspect

LENGTH = 80  # characters


def prompts(count: int) -> list[str]:
    """Beginnings of docstrings and of source files, alternating, all different."""
    texts = []
    for module_or_class in vars(builtins).values():
        documentation = inspect.getdoc(module_or_class)
        if documentation and len(documentation) > LENGTH:
            texts.append(documentation)
    prose = list(dict.fromkeys(text[:LENGTH] for text in texts))
    source = inspect.getsource(inspect)
    step = len(source) // count
    code = [source[start : start + LENGTH] for start in range(0, step * count, step)]
    mixed = [text for pair in zip(prose, code, strict=False) for text in pair][:count]
    assert len(mixed) == count
    return mixed


def in_two_languages(count: int) -> list[str]:
    """The same, every other one in capitals."""
    return [text.upper() if i % 2 else text for i, text in enumerate(prompts(count))]
