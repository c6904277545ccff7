"""Benchmarks an engine without and with drafters: behind its server, or offline in one process.

Reading order: `settings` (the options), `measure` (one measurement of a server, see `mtpc.lab.servers`) and `run` (all
measurements, the servers in turn).  Then `results`, `report` and `plot` (the output), and `command` (`mtpc bench` as a
whole).  `plan` and `configuration` turn the results into settings to serve with (`mtpc plan`).
"""
