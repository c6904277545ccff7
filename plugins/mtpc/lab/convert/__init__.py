"""Converters of published checkpoints into drafter checkpoints."""
