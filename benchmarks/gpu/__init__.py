"""Costs of single mechanisms at serving sizes: `python -m benchmarks.gpu.mechanisms`."""
