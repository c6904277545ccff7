"""Draft vocabularies for the draft models that vLLM runs itself."""
