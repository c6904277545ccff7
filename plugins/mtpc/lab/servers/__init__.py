"""Starting, asking and timing an engine: what the benchmark, distillation and the demo share.

Reading order: `engine` (what is to be known of an engine), `vllm_engine` and `sglang_engine` (what is known, found by
`engines`), `speculation` and `ngram` (what both are told of a drafter, and of their own n-gram drafter), `server` (a
process that is started, waited for and stopped), `load` (requests at a fixed concurrency), `prometheus` (an engine's
counters), `draft_counters` (what they mean) and `draft_times` (what drafting costs).
"""
