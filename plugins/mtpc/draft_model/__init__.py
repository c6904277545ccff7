"""Whole language models that draft from a request's text, with a tokenizer and a context of their own."""
