"""Sending: queues are chosen, bodies packed, attempts repeated, by a deadline."""
