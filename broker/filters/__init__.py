"""SQL92 filters: from a subscription's text to a function of a message's properties.

`sql.py` is the door: it keeps what was compiled. `tokens.py` and `parser.py` read RocketMQ's grammar (its own
SelectorParser, without LIKE and without arithmetic) into the nodes of `nodes.py`, `compiler.py` makes closures of them,
and `values.py` knows how Java reads and compares numbers, since properties are texts and what a text is worth decides
who gets a message. Nothing here knows brokers, queues or records beyond their properties.

Logic has three values: a property that a message lacks is unknown, and only what is true is delivered. A comparison
that cannot be made (a number with a text that is none) ends the evaluation, and the message is not delivered.
"""
