"""Inspection of drafter checkpoints and of one decoding step with a draft tree."""
