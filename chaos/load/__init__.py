"""Load: clients whose every request is recorded, and what a workload is."""
