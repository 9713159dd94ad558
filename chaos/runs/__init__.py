"""A run from its scenario to its verdict: schedule, nemesis, load, closing reads, restart, own checks."""
