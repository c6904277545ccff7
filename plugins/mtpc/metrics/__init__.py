"""What an operator watches of drafters, beside the engine's own counters and on the same page of metrics.

It is counted where the host knows it anyway, in numbers that only grow, and handed to `prometheus_client`, which both
engines use, once a second by a thread: no step waits for it, and no device.
"""
