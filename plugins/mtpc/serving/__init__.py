"""Code that both engines' adapters share."""
