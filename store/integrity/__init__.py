"""What is served is what was written (R18): checks of what comes from the disk, and the scrub in the background."""
