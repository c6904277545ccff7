"""Texts: conversations, prompts, corpora, chat templates, and token counts for draft vocabularies."""
