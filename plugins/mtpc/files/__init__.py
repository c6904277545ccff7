"""Directories on disk, read strictly: configurations in JSON, weights in safetensors, what a target must be."""
