"""Benchmarks of the GPU cards (docs/gpu-cards.md), which `python -m tests.gpu` runs."""
