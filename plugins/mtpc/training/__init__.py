"""Training of circuit heads on a frozen target (MTPC paper, section 4.1)."""
