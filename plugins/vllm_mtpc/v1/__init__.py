"""Drafting on vLLM's V1 model runner, which serves on CPUs.  vLLM calls this runner deprecated."""
