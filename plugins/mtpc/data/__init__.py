"""Text: a corpus of clear licence as bytes."""
