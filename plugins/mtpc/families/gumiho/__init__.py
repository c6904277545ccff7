"""Gumiho (Li et al. 2025): a serial part for the first tokens, heads in parallel for those after them."""
