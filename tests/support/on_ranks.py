"""Drafters of every draft method for the tests of several ranks, which both engines serve."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests.engine.conftest import Models
from tests.support.often import each_of
from tests.support.random_fastmtp import make_fastmtp, make_vocabulary
from tests.support.random_gumiho import make_gumiho
from tests.support.random_hybrid import make_between, make_hybrid, make_subset
from tests.support.random_lora import make_lora
from tests.support.random_models import make_drafter, make_target, make_target_leaves

VOCABULARY, SIZE = 258, 120  # tokens of the target, and of each draft vocabulary
HEADS = {"positions": 3, "blocks": 2}
JOINT = {"positions": 3, "blocks": 1, "circuit": "cp", "rank": 3}


class Made(NamedTuple):
    """The models, and the file of the draft vocabularies, if it drafts through the target's head."""

    models: Models
    vocabulary: Path | None


def window(folder: Path, circuit: str) -> Made:
    """A parallel part, whole on each rank."""
    target = make_target(folder / "target", seed=3)
    return Made(Models(target, make_drafter(folder / "drafter", target, circuit), 5), None)


def by_language(folder: Path, make: Callable[..., Path], drafts: int, *arguments: Any, **options: Any) -> Made:
    """One whose autoregressive part, if any, and rows of the draft vocabularies are shared out over the ranks."""
    target = make_target(folder / "target", seed=3)
    drafter = make(folder / "drafter", target, *arguments, **options)
    return Made(Models(target, drafter, drafts), make_vocabulary(folder / "vocabulary.json", VOCABULARY))


def whole(folder: Path, make: Callable[..., Path], drafts: int, kv_heads: int = 1) -> Made:
    """One with an autoregressive part that drafts from every token that its output head has."""
    target = make_target(folder / "target", seed=3, kv_heads=kv_heads)
    return Made(Models(target, make(folder / "drafter", target), drafts), None)


METHODS: dict[str, Callable[[Path], Made]] = {
    "mtpc": partial(window, circuit="btree"),
    "hybrid": lambda folder: by_language(folder, make_hybrid, 4),
    "between": lambda folder: whole(folder, make_between, 4),
    "subset": lambda folder: whole(folder, make_subset, 5),
    "mtpc through the head": lambda folder: by_language(folder, make_target_leaves, 5),
    "mtpc lora": lambda folder: whole(folder, make_lora, 5, kv_heads=2),  # of fewer, SGLang pads layers on a CPU
    "mtpc ff": partial(window, circuit="ff"),
    "mtpc cp": partial(window, circuit="cp"),
    "mtpc hmm": partial(window, circuit="hmm"),
    "fastmtp": lambda folder: by_language(folder, make_fastmtp, 3),
    "gumiho": lambda folder: by_language(folder, make_gumiho, 5, HEADS, num_hidden_layers=2),
    "gumiho, joint heads": lambda folder: by_language(folder, make_gumiho, 5, JOINT, num_hidden_layers=2, normed=False),
}


def each(often: tuple[str, ...] = (), ways: tuple[str, ...] = ("",)) -> Iterator[Any]:
    """Parameters: every draft method and every way to serve it, `thorough` where it is not tested ``often``."""
    served = {f"{method}, {way}" if way else method: (method, way) for way in ways for method in METHODS}
    return each_of(served, often, served.__getitem__)
