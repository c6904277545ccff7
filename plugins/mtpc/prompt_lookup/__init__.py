"""Copying as a component of the joint: the text goes on as it went on before, or as the drafter says."""
