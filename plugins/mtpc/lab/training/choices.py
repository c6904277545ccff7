"""What can be chosen of a training by name."""

from __future__ import annotations

from typing import Literal

Loss = Literal["ce", "kl", "lk"]
LearnFrom = Literal["answers", "all"]
