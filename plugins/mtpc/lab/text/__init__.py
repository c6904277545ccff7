"""Texts: conversations, prompts, corpora, chat templates, and draft vocabularies counted from them."""
