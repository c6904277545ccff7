"""Expected acceptance of a drafter, without an engine."""
