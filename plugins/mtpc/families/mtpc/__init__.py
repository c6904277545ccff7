"""MTPC: a probabilistic circuit over a window of tokens, drafted in one shot (no serial part)."""
