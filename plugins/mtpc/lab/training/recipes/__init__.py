"""Training recipes, one per draft method."""
