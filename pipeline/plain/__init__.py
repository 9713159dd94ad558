"""The checks in plain Python, one function each, and what they look at: the twins of those in Spark."""
