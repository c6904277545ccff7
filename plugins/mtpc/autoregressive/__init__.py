"""The autoregressive part of a drafter: draft layers that engines run step by step, with a paged KV cache."""
