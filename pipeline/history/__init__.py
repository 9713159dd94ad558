"""What a run leaves: rows of operations, reads and faults as Parquet, what was promised, and what the checks found."""
