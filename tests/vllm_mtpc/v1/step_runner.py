"""As much of vLLM's V1 runner as tests need that time decoding steps."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch


class StepRunner(SimpleNamespace):
    """What `measured_costs` uses; `_dummy_run` and the model are given.

    Attributes:
        mapped: Rows of logits that the adapters are set for at the moment.
    """

    lora_config, max_num_tokens, dtype = None, 64, torch.float32
    mapped = 0

    @contextmanager
    def maybe_select_dummy_loras(self, lora_config: Any, num_scheduled_tokens: Sized) -> Iterator[None]:
        """Set the adapters of a batch with one row of logits for each request."""
        assert lora_config is self.lora_config
        self.mapped = len(num_scheduled_tokens)
        yield
        self.mapped = 0
