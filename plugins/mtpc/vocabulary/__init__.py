"""Draft vocabularies: the tokens worth drafting, ranked by how often each language uses them.

FastMTP paper, section 2.2, after FR-Spec (Zhao et al. 2025): a drafter computes the output head's rows of the most
frequent tokens only.  The verifier sees the whole vocabulary, so no text changes.
"""
