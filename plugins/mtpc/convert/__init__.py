"""Turns published checkpoints into drafter directories.

What a checkpoint may hold is data (`mtpc.convert.mimo`): whatever is not in the tables is refused, not guessed.
"""
