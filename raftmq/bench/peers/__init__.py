"""Other brokers beside ours: each is started as its users start it, and loaded by one client of one shape.

`systems` names what can be measured and what each promises with an acknowledgement; `ours`, `rocketmq`, `nats` and
`rabbitmq` start them; `rawclient` builds and runs the load, which is C (rawload/); `rounds` measures by turns and sums
up.
"""
