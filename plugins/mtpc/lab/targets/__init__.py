"""Targets: loading of frozen models, generation with them, and the small targets that this project provides."""
