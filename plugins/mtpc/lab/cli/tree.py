"""`mtpc inspect DIR --tree PROMPT`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mtpc.errors import MTPCError
from mtpc.lab.console import console

if TYPE_CHECKING:
    from mtpc.lab.inspect.tree_step import DraftTreeShape

SUFFIX = ".png"  # of the one kind of file that a tree is drawn in


def show_tree(folder: Path, target: Path | None, prompt: str, shape: DraftTreeShape, out: Path | None) -> None:
    """Show a step's tree in the terminal, and draw it where a file is named.

    Errors: `MTPCError` without a target, without what draws, or as `mtpc.lab.inspect.tree_step.tree_step`.
    """
    from mtpc.lab.inspect.tree_step import tree_step
    from mtpc.lab.inspect.tree_terminal import render_tree

    if target is None:
        raise MTPCError("--tree needs --target, the folder of the model that the drafts are for.")
    try:
        prompt.encode()
    except UnicodeEncodeError:
        raise MTPCError(f"--tree is {prompt!r}, but text in UTF-8 is expected.") from None
    if out is not None:
        if out.suffix.lower() != SUFFIX:
            raise MTPCError(f"--out is {out}, but trees are drawn as PNG: name a file that ends in {SUFFIX}.")
        try:
            from mtpc.lab.inspect.tree_picture import save
        except ImportError:
            raise MTPCError("drawing a tree needs the package matplotlib: pip install matplotlib.") from None
    step = tree_step(folder, target, prompt, shape)
    terminal = console()
    terminal.print(render_tree(step))
    borrowed = sum(node.is_borrowed for node in step.nodes)
    terminal.print(f"\n{len(step.nodes)} drafts, {borrowed} of them borrowed; {step.accepted} accepted")
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        save(out, step)
        terminal.print(f"drawn as {out}")
