"""The lab: what a person runs to make, measure and prove drafters.  It imports the serving floor, never the reverse."""
