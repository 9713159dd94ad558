"""A load generator that speaks raw frames, so that the broker is measured and not its client.

`frames` makes requests from templates and reads just enough of the answers; `load` keeps W requests in flight on each
connection; `suite` runs the matrix of docs/performance.md; `endtoend` measures through RaftMQ's own client instead.
"""
