"""Training of drafters on a frozen target: one loop, one schedule, one resumable state and a recipe per method."""
