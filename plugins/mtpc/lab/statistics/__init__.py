"""Whether samples are of a distribution: what `mtpc prove` and this project's own tests judge a server by.

Reading order: `chi_square` (the test, and the level of many together), `windows` (the cells of several tokens' joint)
and `power` (what a test would have seen).
"""
