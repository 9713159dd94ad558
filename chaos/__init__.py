"""Fault scenarios against a real local cluster: start it, load it, break it, heal it, and judge what is left.

* processes, local: servers as processes, and clusters of them, for the demo, benchmarks and tests too
"""
