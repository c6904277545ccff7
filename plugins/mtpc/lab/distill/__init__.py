"""Self-distillation (FastMTP paper, section 2.4): the target generates the text that its drafter is trained on."""
