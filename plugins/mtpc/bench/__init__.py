"""Measures an engine with and without a drafter, side by side: behind its server, or alone in a process.

Reading order: `engine` (what is to be known of an engine), `vllm_engine` and `sglang_engine` (what is known, found by
`engines`), `server` (a process under test), `load` (requests at a fixed concurrency), `prometheus` (an engine's
counters), `acceptance` (what they mean), `measure` (one measurement), `run` (all of them, the two servers in turn),
`results`, `report` and `plot` (what came out), and `command` (all of it).
"""
