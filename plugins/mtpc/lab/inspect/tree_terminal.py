"""A step's tree in the terminal."""

from __future__ import annotations

import json

from rich.text import Text
from rich.tree import Tree

from mtpc.lab.inspect.tree_step import TreeStep


def render_tree(step: TreeStep) -> Tree:
    """A line for each token, with the probability of what leads to it, and what became of it."""
    root = Tree(_line(step.first, "the target's own", "magenta"))
    branches = {-1: root}
    for place, node in enumerate(step.nodes):
        told = [f"{node.probability:.3g}", *(["borrowed"] if node.is_borrowed else [])]
        told += ["accepted"] if node.is_accepted else []
        style = "green" if node.is_accepted else "yellow" if node.is_borrowed else ""
        branches[place] = branches[node.parent].add(_line(node.token, ", ".join(told), style))
    branches[step.deepest_accepted].add(_line(step.last, "the target's own", "magenta"))
    return root


def _line(token: str, told: str, style: str) -> Text:
    """What a token says is never rich's own markup."""
    return Text(f"{json.dumps(token, ensure_ascii=False)}  {told}", style=style)
