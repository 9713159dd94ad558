"""The CommitLog while it grows: put, write, dispatch, flush, checkpoint, retention, and the walk over its records."""
