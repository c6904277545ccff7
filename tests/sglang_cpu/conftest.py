"""Most of this stands by itself; what fits into SGLang's own classes needs SGLang."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [] if find_spec("sglang") else ["test_draft_attention.py"]
