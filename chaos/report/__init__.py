"""What people and build machines see of runs: a page, a summary, junit.xml."""
