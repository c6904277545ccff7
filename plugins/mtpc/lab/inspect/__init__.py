"""One decoding step with a tree of drafts, to look at: `step` says what happens, `picture` and `terminal` show it."""
