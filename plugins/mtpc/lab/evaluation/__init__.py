"""Acceptance of drafters without an engine, in closed form on text of the target and by actual decoding."""
