"""How many tokens a step drafts: what steps cost, the choice between lengths, and who makes it."""
