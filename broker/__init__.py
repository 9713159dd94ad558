"""The broker: takes messages from producers, keeps them in the store, hands them to consumer groups.

A request's way is a straight line: `remoting/server` decodes it, the table in `parts.py` (request code → handler)
picks the handler, the handler decides and either answers at once or parks a small record that somebody completes.

Rooms, each using those below it:

- `main`, `server`: the process, and the broker's life.
- `master_slave`: a master (`master`, `ha_server`, `sync_replication`, `fencing`), a slave (`slave`, `ha_client`,
  `metadata_copy`), and how a person makes it another one (`promotion`, `to_raft`).
- `raft_group`: a member of a Raft group. `parts`: the composition root; it builds every part in visible order and
alone knows
  them all. Every part is given what it needs by its constructor, never the broker.
- `admin`: what administrators and tools ask. `housekeeping`: what is done by the clock. `mode`: the seam behind which
a broker
  is single, a member, a master or a slave.
- `transactions`: half messages, their ends (37), and asking producers about the undecided (39).
- `messages`: sends (10, 310, 320), pulls (11, 361), who waits for which queue, delays, retries (36).
  `registration`: what NameServers are told.
- `metadata`: tables of topics, groups and offsets, and the operations that change them. `peers`: what others say of
the group. - `clients`: who is connected. `deadlines`: until when a request's fate is decided.
- `settings`: configuration and what was decided over it; `role` is what everybody asks; `replication`: when is a
message
  acknowledged?

Decide without I/O: the long-poll, offset, client, lock and topic tables are plain values driven by an injected clock.
All tables are changed in the event loop only, in one synchronous step; the store's flusher thread speaks to the loop
through `call_soon_threadsafe`, cold reads run in a small thread pool. Every table has a limit, named where it stands.
"""
