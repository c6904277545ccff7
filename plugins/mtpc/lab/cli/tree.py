"""`mtpc inspect DIR --tree PROMPT`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mtpc.errors import MTPCError
from mtpc.lab.console import console

if TYPE_CHECKING:
    from mtpc.lab.inspect.tree_step import DraftTreeShape

SUFFIX = ".png"  # trees are drawn as PNG only


def show_tree(folder: Path, target: Path | None, prompt: str, shape: DraftTreeShape, out: Path | None) -> None:
    """Print the draft tree of one decoding step, and draw it to a file if one is given.

    Args:
        folder: Drafter checkpoint.
        target: Folder of the target; required.
        prompt: Text before the step.
        shape: Size of the tree.
        out: PNG file to draw to; None to only print.

    Raises:
        MTPCError: The target or matplotlib is missing, or as `mtpc.lab.inspect.tree_step.tree_step`.
    """
    from mtpc.lab.inspect.tree_step import tree_step
    from mtpc.lab.inspect.tree_terminal import render_tree

    if target is None:
        raise MTPCError("--tree requires --target, the model that the drafter was trained for.")
    try:
        prompt.encode()
    except UnicodeEncodeError:
        raise MTPCError(f"--tree is {prompt!r}, but it must be UTF-8 text.") from None
    if out is not None:
        if out.suffix.lower() != SUFFIX:
            raise MTPCError(f"--out is {out}, but trees are drawn as PNG: give a file that ends in {SUFFIX}.")
        try:
            from mtpc.lab.inspect.tree_picture import save
        except ImportError:
            raise MTPCError("--out requires the package matplotlib: in a checkout, pip install '.[cli]'.") from None
    step = tree_step(folder, target, prompt, shape)
    terminal = console()
    terminal.print(render_tree(step))
    borrowed = sum(node.is_borrowed for node in step.nodes)
    terminal.print(f"\n{len(step.nodes)} draft tokens, {borrowed} of them borrowed; {step.accepted} accepted")
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        save(out, step)
        terminal.print(f"written to {out}")
