"""Most of these tests run without SGLang; tests with SGLang's own classes need it."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [] if find_spec("sglang") else ["test_draft_attention.py"]
