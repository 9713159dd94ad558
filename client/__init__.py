"""The client library: what an application uses to send to and consume from a cluster. asyncio first.

    producer ─┐
    push ─────┤→ instance → routes → api → remoting/client ⇒ NameServer, brokers
    litepull ─┤
    simple ───┤
    admin ────┘

- `producer`  sends: one message or a batch, awaited, as a future, or one-way; `sendpolicy` picks queues, `latency`
  knows slow brokers, `retry` decides about a second attempt.
- `transactions`  half message, local part, end; `checks` answers brokers that ask what became of one. `timers` says
  when a message is to be delivered, `recalls` takes it back.
- `push`      messages come to a callback, concurrently or in queue order; `rebalance` shares queues among the group's
  members, `processqueue` knows what is unfinished, `offsets` where to go on, `push_queue` fetches, `listeners` calls.
- `litepull`  the application asks for messages itself and moves its own position.
- `simple`    POP: brokers share out messages, not queues; `popping` asks in turn, `settling` acknowledges.
- `admin`     what the commands need; by theme in the room `admin`.
- `instance`  what producers and consumers of one process may share: connections, heartbeats, routes, the answers to
  requests that brokers send.
- `api`       one method per request code; knows headers and bodies, decides nothing.

Rooms: `produce`, `consume`, `admin`; what they share stands beside them.

Whatever decides is free of I/O (`rebalance`, `processqueue`, `sendpolicy`, `latency`, `routes.TopicRoute`,
`subscription`) and is tested without a loop. A consumer sees every message at least once: after a crash, a failed
commit or a rebalance some come again. Nothing is skipped.
"""
