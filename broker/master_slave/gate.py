"""What only the master of a classic pair does, and how everybody else refuses it.

A slave's log is the master's, byte for byte, and its tables are copies: whatever would change either is refused, with
words that name the master. Sends and what belongs to them get 14, which clients take as "try elsewhere" (an end of a
transaction gets 11 from a slave); what an administrator asks for gets 1, RocketMQ's code for it. A fenced master
refuses the same, and commits of offsets too: they would be lost with it, while a client that is refused commits again
where the route leads by then.

Everything else is served: heartbeats, pulls, positions, queries, and on a slave offsets, for consumers go on there
while the master is away.
"""

from collections.abc import Callable
from typing import cast

from broker.leader_only import LEADER_ONLY, LEASED, SENDS, gated_runs
from broker.master_slave.role import ClassicRole
from broker.role import MASTER_ID
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.runs import SEND_RUN
from remoting.server import Connection, Handler

LOCKS = frozenset({int(RequestCode.LOCK_BATCH_MQ), int(RequestCode.UNLOCK_BATCH_MQ)})
COMMITS = frozenset({int(RequestCode.UPDATE_CONSUMER_OFFSET)})
# Clients' requests that change the log.
WRITES = frozenset(
    int(code)
    for code in (
        *SENDS,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.END_TRANSACTION,
        RequestCode.RECALL_MESSAGE,
        RequestCode.ACK_MESSAGE,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    )
)
# Administrators' requests that change the tables.
CHANGES = (
    frozenset(int(code) for code in LEADER_ONLY | LEASED) - WRITES - LOCKS - COMMITS - {int(code) for code in LEASED}
)


class ClassicGate:
    """Stands before the handlers of a master or slave."""

    def __init__(self, role: ClassicRole, acts: Callable[[], bool]) -> None:
        """`acts` tells whether a slave grants queue locks in the place of its master."""
        self._role = role
        self._acts = acts

    def gate(self, table: dict[int, Handler]) -> dict[int, Handler]:
        """Return the table with a gate before what only a master that takes messages does."""
        return {code: self._gated(code, handler) for code, handler in table.items()}

    def _gated(self, code: int, handler: Handler) -> Handler:
        role, acts = self._role, self._acts

        def write(connection: Connection, request: Command) -> object:
            if role.leads:
                return handler(connection, request)
            # RocketMQ's code for it, at its slaves.
            ends = code == RequestCode.END_TRANSACTION and role.broker_id != MASTER_ID
            refused = ResponseCode.SLAVE_NOT_AVAILABLE if ends else ResponseCode.SERVICE_NOT_AVAILABLE
            raise CommandError(refused, self._words("takes no messages"))

        def change(connection: Connection, request: Command) -> object:
            if role.leads:
                return handler(connection, request)
            raise CommandError(ResponseCode.SYSTEM_ERROR, self._words("changes nothing"))

        def lock(connection: Connection, request: Command) -> object:
            if role.leads or acts():
                return handler(connection, request)
            raise CommandError(ResponseCode.SERVICE_NOT_AVAILABLE, self._words("grants no locks"))

        def commit(connection: Connection, request: Command) -> object:
            if role.fenced is None:
                return handler(connection, request)
            raise CommandError(ResponseCode.SERVICE_NOT_AVAILABLE, self._words("takes no offsets"))

        if code == SEND_RUN:
            return gated_runs(handler, lambda _run: role.leads)
        if code in WRITES:
            return cast(Handler, write)
        if code in CHANGES:
            return cast(Handler, change)
        if code in LOCKS:
            return cast(Handler, lock)
        if code in COMMITS:
            return cast(Handler, commit)
        return handler

    def _words(self, what: str) -> str:
        role = self._role
        if role.fenced is not None:
            return f"this broker {what}: {role.fenced}"
        if role.holds is not None:
            return f"this broker {what} yet: {role.holds}"
        master = role.leader_address
        asked = f"ask the master at {master}" if master is not None else "no master is known at the moment"
        return f"this is a slave, it {what}: {asked}"
