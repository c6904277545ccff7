"""The target's embedding and output head as drafters use them: whole, or the rows of draft vocabularies only."""
