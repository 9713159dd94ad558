"""A member of a Raft group: its replication, metadata, forwarding to the leader, snapshots, retention, conversion."""
