"""Targets: models that this project makes or unpacks so that its drafters have something to serve."""
