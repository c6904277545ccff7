"""Draft vocabularies and prompt lookup for vLLM's own drafters: ``mtp``, ``eagle``, ``eagle3``, ``draft_model``."""
