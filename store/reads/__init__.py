"""Reading: messages of a queue, by key, by time, as bytes for slaves."""
