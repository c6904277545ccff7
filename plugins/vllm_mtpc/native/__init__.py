"""Draft vocabularies for vLLM's own drafters: ``mtp``, ``eagle``, ``eagle3`` and ``draft_model``."""
