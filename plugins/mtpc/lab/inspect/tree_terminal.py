"""Draft tree of one decoding step, as text in the terminal."""

from __future__ import annotations

import json

from rich.text import Text
from rich.tree import Tree

from mtpc.lab.inspect.tree_step import TreeStep


def render_tree(step: TreeStep) -> Tree:
    """Render a draft tree, with one line per token.

    Args:
        step: Decoding step with its tree.

    Returns:
        Tree of rich. Each line has the probability of the prefix, and whether the token is borrowed or accepted.
    """
    root = Tree(_line(step.first, "target token", "magenta"))
    branches = {-1: root}
    for number, node in enumerate(step.nodes):
        notes = [f"{node.probability:.3g}", *(["borrowed"] if node.is_borrowed else [])]
        notes += ["accepted"] if node.is_accepted else []
        style = "green" if node.is_accepted else "yellow" if node.is_borrowed else ""
        branches[number] = branches[node.parent].add(_line(node.token, ", ".join(notes), style))
    branches[step.deepest_accepted].add(_line(step.last, "target token", "magenta"))
    return root


def _line(token: str, notes: str, style: str) -> Text:
    """Return a line, in which the token is never read as markup of rich."""
    return Text(f"{json.dumps(token, ensure_ascii=False)}  {notes}", style=style)
