"""What an administrator asks of a cluster: topics, groups, offsets, messages, brokers, Raft groups, pairs."""
