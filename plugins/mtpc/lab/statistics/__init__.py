"""Statistical tests that samples have a given distribution, used by `mtpc prove` and by this project's own tests.

Reading order: `chi_square` (the test, and Holm's correction for many tests), `windows` (cells of the joint distribution
of several tokens) and `power` (the smallest difference that a test detects).
"""
