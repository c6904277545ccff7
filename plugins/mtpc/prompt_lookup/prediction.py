"""Predicted outputs: a request may bring the text that it expects, to copy from (OpenAI's "predicted outputs")."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import takewhile
from typing import Any

from mtpc.errors import MTPCError
from mtpc.prompt_lookup.match import REACH

logger = logging.getLogger(__name__)

PREDICTION = "prediction"  # in vLLM's ``vllm_xargs`` and SGLang's ``custom_params``
CONTEXT = 16  # tokens at the end of the prompt that stand before the prediction, so that its beginning is found
MAX_CHARACTERS = 4 * REACH  # of a prediction that are read, as all requests of a batch wait for it


class Predictions:
    """Reads the predictions of requests, in the target's tokens.

    Attributes:
        vocab_size: V of the target.

    Args:
        load: Loads the target's tokenizer of transformers; called for the first prediction.
        vocab_size: V of the target, whose tokenizer may have more tokens. A prediction ends before such a token.
    """

    def __init__(self, load: Callable[[], Any], vocab_size: int) -> None:
        self._load, self.vocab_size = load, vocab_size

    def of(self, parameters: Any, prompt: Sequence[int]) -> list[int]:
        """Return a text that a request may copy from in addition to its own.

        Args:
            parameters: Its parameters, a mapping or None; the text is under `PREDICTION`.
            prompt: Tokens of its prompt.

        Returns:
            The end of the prompt, followed by the predicted text; empty if the request predicts nothing.
        """
        text = parameters.get(PREDICTION) if isinstance(parameters, Mapping) else None
        if text is None:
            return []
        if not isinstance(text, str):
            logger.warning("A request's %r is ignored: it must be a text, not %s.", PREDICTION, type(text).__name__)
            return []
        if self._tokenizer is None:
            return []
        readable = text[:MAX_CHARACTERS].encode("utf-8", "replace").decode()  # JSON may hold half a surrogate pair
        tokens = list(takewhile(self.vocab_size.__gt__, self._tokenizer.encode(readable, add_special_tokens=False)))
        return [*prompt[-CONTEXT:], *tokens] if tokens else []

    @cached_property
    def _tokenizer(self) -> Any:
        try:
            return self._load()
        except MTPCError as error:
            logger.warning("Predictions of requests are ignored: %s", error)
            return None
