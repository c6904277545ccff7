"""Measures an engine without and with drafters, side by side: behind its server, or alone in a process.

Reading order: `measure` (one measurement of a server, see `mtpc.lab.servers`), `run` (all, the servers in turn),
`results`, `report` and `plot` (what came out), and `command` (all of it).  Then `plan` and `configuration`: what to
serve with because of it.
"""
