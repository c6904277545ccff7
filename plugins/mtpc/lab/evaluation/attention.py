"""Attention of draft steps in training: as served by an engine, or as in the FastMTP paper."""

from __future__ import annotations

from typing import Literal

Attention = Literal["served", "paper"]
