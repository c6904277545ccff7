"""The autoregressive part of a drafter: layers that engines run step by step, with keys and values in their pages."""
