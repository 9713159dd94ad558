"""A Raft group member's entries in the CommitLog: appended, checked, released when committed, repaired from others.

entrylog is the face (raft.protocol.types.Log); entryview what it can be asked; mending and entryrepair fill holes.
"""
