"""Self-distillation (FastMTP paper, section 2.4): the target writes the text that its drafter learns from."""
