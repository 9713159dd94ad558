"""A slave's log, the master's bytes, and the truncation of what the master has not."""
