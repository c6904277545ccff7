"""The serial part of a drafter: a decoder layer that engines run step by step, with keys and values in their pages."""
