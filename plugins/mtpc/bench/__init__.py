"""Measures a served engine with and without a drafter, over HTTP and side by side.

Reading order: `engines` (how a server is started and where its counters are), `server` (a server process),
`load` (requests at a fixed concurrency), `prometheus` (the engine's counters), `acceptance` (what they mean),
`measure` (one point of the benchmark), `run` (all points, both servers), `report` and `plot`.
"""
