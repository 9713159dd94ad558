"""The broker: takes messages from producers, keeps them in the store, hands them to consumer groups.

A request's way is a straight line: `remoting/server` decodes it, the table in `parts.py` (request code → handler)
picks the handler, the handler decides and either answers at once or parks a small record that somebody completes.

- data plane: `send.py` (10, 310, 320; checks in `msgcheck.py`) → `replication.py` (when is a message acknowledged?) →
  store; `pull.py` (11, 361; tag filter in `filter.py`) → store, or `longpoll.py` (who waits for which queue);
  `offsets.py` (how far has a group come, 14 and 15).
- later: `schedule.py` (delay levels: SCHEDULE_TOPIC_XXXX → the real queue; the two forms in `delayed.py`) and
  `sendback.py` (36: tried again later, or a dead letter).
- who is connected: `clients.py` (groups, members, subscriptions), `client_handlers.py` (34, 35, 38, 46), `locks.py`
  (41, 42).
- metadata: `topics.py`, `groups.py`; `register.py` tells every NameServer; `admin_*.py` serve the administrators.
- what the broker is: `role.py` is what everybody asks; `mode.py` is the seam, behind it a member of a Raft group
  (`group.py`, `raft_*.py`; `meta*.py`: tables through the log; `forward.py`), a master (`classic.py`, `ha_server.py`,
  `syncreplication.py`, `fencing.py`) or a slave (`classic_slave.py`, `ha_client.py`, `ha_compare.py`, `slave_meta.py`).
  `promotion.py`, `convert*.py`, `override.py`: a person makes it another one; `reborn.py`: what is done in between.
- `server.py` is the broker's life; `parts.py` the composition root: it builds every part in visible order and alone
  knows them all. Every part is given what it needs by its constructor, never the broker.

Decide without I/O: the long-poll, offset, client, lock and topic tables are plain values driven by an injected clock.
All tables are changed in the event loop only, in one synchronous step; the store's flusher thread speaks to the loop
through `call_soon_threadsafe`, cold reads run in a small thread pool. Every table has a limit, named where it stands.
"""
