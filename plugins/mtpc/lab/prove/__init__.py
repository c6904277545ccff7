"""Proves by samples that a server with a drafter says what the same server without one says.

Reading order: `plan` (how much is asked, and how it is sampled), `dialects` and `client` (how a server is asked),
`ask` (what it is asked, and what it said), `stated` (what the baseline states of the next token), then what is looked
at: `greedy`, `joint`, `places`, `noise`; `report` and `page` (what came out), and `command` (all of it).
"""
