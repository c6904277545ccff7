"""Types of command-line options: numbers, names and paths."""
