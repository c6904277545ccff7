"""What drafters cost and gain on one to eight GPUs, computed: `python -m benchmarks.at_scale`."""
