"""What both engines' adapters share."""
