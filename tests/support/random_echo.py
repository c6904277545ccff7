"""An example drafter with a text part, for the random targets."""

from __future__ import annotations

import sys
from pathlib import Path

from transformers import AutoConfig

from mtpc.methods import DraftMethod, draft_methods
from mtpc.methods.drafter import Drafter, save_drafter

FOLDER = Path(__file__).parent / "echo"  # on the PYTHONPATH of processes that are to know the draft method


def register_method() -> None:
    """Make the draft method known in this process."""
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
        draft_methods.cache_clear()


def forget_method() -> None:
    """Undo `register_method`."""
    if str(FOLDER) in sys.path:
        sys.path.remove(str(FOLDER))
        draft_methods.cache_clear()


def method() -> DraftMethod:
    """The draft method."""
    register_method()
    return next(method for method in draft_methods() if method.name == "echo")


def make_echo(folder: Path, target: Path) -> Path:
    """A drafter that needs no weights."""
    kind, config = method(), AutoConfig.from_pretrained(target)
    drafter = Drafter(kind, kind.config(hidden_size=config.hidden_size, vocab_size=config.vocab_size))
    save_drafter(folder, drafter, {"purpose": "tests"})
    return folder
