"""Single files and what they promise: mapped files and descriptors, checkpoint, floor, lock, beginning."""
