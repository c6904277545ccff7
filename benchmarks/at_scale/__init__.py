"""Projected cost and gain of drafters on one to eight GPUs: `python -m benchmarks.at_scale`."""
