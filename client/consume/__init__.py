"""Consuming: queues are shared among a group, pulled, handed to listeners or polled, and their offsets kept."""
