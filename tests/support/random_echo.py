"""An example drafter with a text part, for the random targets."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from transformers import AutoConfig

from mtpc.methods import DraftMethod, draft_methods
from mtpc.methods.drafter import Drafter, save_drafter
from tests.support import random_hybrid

FOLDER = Path(__file__).parent / "echo"  # on the PYTHONPATH of processes that are to know the draft method
register_method = partial(random_hybrid.register_method, FOLDER)
forget_method = partial(random_hybrid.forget_method, FOLDER)


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
