"""Fixes of sampling with drafts that vLLM's CPU backend needs, with any drafter."""
