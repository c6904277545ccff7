"""Prompt lookup as a component of the draft distribution: the text continues as before, or as the drafter drafts."""
