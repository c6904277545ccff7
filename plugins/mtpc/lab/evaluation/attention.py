"""What a step of an autoregressive part attends to in training: what it does in an engine, or in the FastMTP paper."""

from __future__ import annotations

from typing import Literal

Attention = Literal["served", "paper"]
