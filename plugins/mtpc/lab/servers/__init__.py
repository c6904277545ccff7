"""Starting engines, sending them requests and reading their counters, for the benchmark, distillation and the demo.

Reading order: `engine` (the description of an engine), `vllm_engine` and `sglang_engine` (its instances, looked up in
`engine_registry`).  `speculation` and `ngram` are settings of a drafter, and of the engine's n-gram drafter.  `server`
starts and stops a process, which `watchdog` ends with its parent.  `connection` and `load` send requests at a fixed
concurrency.  `prometheus` and `draft_counters` read acceptance, `draft_times` the time spent on drafting.
"""
