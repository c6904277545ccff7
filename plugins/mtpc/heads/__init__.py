"""Heads: neural networks from the target's hidden state to the parameters of a circuit."""
