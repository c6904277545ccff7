"""Fixes for sampling with draft tokens on vLLM's CPU backend, for every speculative method."""
