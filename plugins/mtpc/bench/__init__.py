"""Measures a served engine with and without a drafter, over HTTP and side by side.

Reading order: `engine` (how a server is started and where its counters are), `vllm_engine` and `sglang_engine` (the
two that `engines` finds), `server` (a server process), `load` (requests at a fixed concurrency), `prometheus` (the
engine's counters), `acceptance` (what they mean), `measure` (one point of the benchmark), `run` (all points, both
servers), `report` and `plot`.
"""
