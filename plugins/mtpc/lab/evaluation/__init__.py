"""Acceptance of drafters without an engine: in closed form along what the target wrote, and by the real loop."""
