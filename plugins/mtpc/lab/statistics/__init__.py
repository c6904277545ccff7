"""Whether samples are of a distribution: what `mtpc prove` and this project's own tests judge a server by.

Reading order: `chi_square` (the test and its distribution), `windows` (the cells of several tokens' joint), `power`
(what a test would have seen) and `many` (the level of many tests together).
"""
