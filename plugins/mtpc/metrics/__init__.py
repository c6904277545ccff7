"""Metrics of drafters, on the same page as the engine's own.

Values are counted where the host knows them anyway.
A thread passes them to `prometheus_client`, which both engines use, once per second: no decoding step and no device
waits for it.
"""
