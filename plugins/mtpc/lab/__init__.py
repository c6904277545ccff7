"""Tools to train, measure and prove drafters; they import the serving packages of `mtpc`, never the reverse."""
