"""Modules of a target that drafters share, wherever its language model is."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mtpc.errors import MTPCError
from sglang_mtpc.target_modules import target_module

TEXT = SimpleNamespace(model=SimpleNamespace(embed_tokens="embedding", layers="layers"), lm_head="head")
NAMES = {"model.embed_tokens": "embedding", "model.layers": "layers", "lm_head": "head"}


@pytest.mark.parametrize(
    "target",
    [TEXT, SimpleNamespace(language_model=TEXT), SimpleNamespace(language_model=TEXT, lm_head=None)],
    ids=["text", "as in LLaVA", "no head"],
)
def test_modules_are_found(target: SimpleNamespace) -> None:
    assert {name: target_module(target, name) for name in NAMES} == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_target_without_them_is_refused(name: str) -> None:
    for target in (SimpleNamespace(), SimpleNamespace(language_model=SimpleNamespace(lm_head=None))):
        with pytest.raises(MTPCError, match=rf"shares {name} of the target, which SGLang's SimpleNamespace does not"):
            target_module(target, name)
