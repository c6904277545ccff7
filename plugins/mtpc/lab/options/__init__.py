"""Parsers and checks of command-line options: numbers, names, paths, and options from dataclasses."""
