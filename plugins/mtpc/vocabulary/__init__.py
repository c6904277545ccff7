"""Draft vocabularies: the tokens worth drafting, ranked by how often each language uses them.

A drafter computes only the output head rows of the most frequent tokens.  See FastMTP (arXiv 2509.18362, section 2.2)
and FR-Spec (arXiv 2502.14856).  The verifier uses the whole vocabulary, so the output distribution does not change.
"""
