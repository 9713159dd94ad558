"""A master and its slaves: HA protocol, comparing and following, promotion, fencing, conversion to a Raft group."""
