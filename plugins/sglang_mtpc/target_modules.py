"""Modules of the target's language model, which drafters share."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from mtpc.errors import MTPCError


def target_module(target: Any, name: str) -> Any:
    """Return a module of the target, or of the language model within a multimodal target.

    SGLang's ``get_embed_and_head`` returns weights only: those of a quantized head lack their scales.

    Args:
        target: SGLang's model of the target.
        name: Path of the module in SGLang's models of text, for example ``model.embed_tokens``.

    Raises:
        MTPCError: There is no such module.
    """
    for model in (target, getattr(target, "language_model", None)):
        try:
            module = attrgetter(name)(model)
        except AttributeError:
            continue
        if module is not None:
            return module
    raise MTPCError(
        f"the drafter shares {name} of the target, which SGLang's {type(target).__name__} does not have: serve this "
        "target without a drafter."
    )
