"""Text: a corpus of clear licence as bytes, and the windows that training reads."""
