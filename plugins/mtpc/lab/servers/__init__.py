"""Starting engines, sending them requests and reading their counters, for the benchmark, distillation and the demo.

Reading order: `engine` (the description of an engine), `vllm_engine` and `sglang_engine` (its instances, looked up in
`engine_registry`), `speculation` and `ngram` (settings of a drafter, and of the engine's own n-gram drafter), `server`
(a process that is started and stopped, kept by `watchdog`), `connection` and `load` (requests at a fixed concurrency),
`prometheus` and `draft_counters` (acceptance) and `draft_times` (time spent on drafting).
"""
