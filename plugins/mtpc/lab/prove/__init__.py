"""Tests that a server with a drafter generates the same output distribution as the same server without one.

Reading order: `settings` (the options), `plan` (number of requests and sampling settings), `engine_api` and `client`
(requests to each engine) and `recording` (all requests and their outputs).  `sampling_distribution` is what the
baseline samples from.  Then the tests: `greedy`, `joint_distribution`, `uniformity` and `repetition`, combined by
`significance`; `report` and `html_report` (the output), and `command` (`mtpc prove` as a whole).
"""
