"""Training of drafters on a frozen target: one loop, one schedule, one resumable state; a draft method gives the recipe."""
