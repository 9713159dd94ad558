"""The checks in Spark: the same findings as pipeline/plain/ has, for histories and logs of any size."""
