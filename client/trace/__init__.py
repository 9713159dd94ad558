"""Message traces: who sent and consumed which message, when, and how it went, as messages of a topic of their own.

`records` is RocketMQ's text format of them, `dispatcher` sends what was gathered in the background, `hooks` gathers it
at sends and consumers. Whoever wants to know looks the message's id up in the trace topic's index
(`raftmq message trace`, `mqadmin queryMsgTraceById`).
"""
