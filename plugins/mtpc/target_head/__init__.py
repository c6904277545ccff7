"""The target's embedding and output head as drafters use them: whole, rows of draft vocabularies, a sample of rows."""
