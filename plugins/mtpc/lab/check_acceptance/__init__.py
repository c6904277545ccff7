"""`mtpc check-acceptance`: does a running server accept as many draft tokens as the reference implementation?

Reading order: `settings` (the options), `served_drafter` (what the server drafts with, and what cannot be compared),
and `expectation` (acceptance along the server's own outputs).  Then `comparison` (by position, with intervals),
`report` and `command`.
"""
