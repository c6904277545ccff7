"""Measures an engine with and without a drafter, side by side: behind its server, or alone in a process.

Reading order: `measure` (one measurement of a server, see `mtpc.servers`), `run` (all of them, the two servers in
turn), `results`, `report` and `plot` (what came out), and `command` (all of it).
"""
