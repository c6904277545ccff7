"""Multi-token-prediction drafters for released vLLM and SGLang: the engine-neutral core."""

__version__ = "0.1.0"
