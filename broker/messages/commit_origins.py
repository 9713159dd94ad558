"""Whose an offset commit is, and when it came from him, also when another member of the group passed it on."""

from collections.abc import Callable
from contextlib import suppress
from typing import cast

from broker.clients import ClientTable
from broker.deadlines import Came
from broker.leader_only import CLIENT_ID, HOP_FLAG, FromMember
from broker.metadata.committers import ANYBODY, Committer, DoubtfulCommit
from broker.metadata.consumer_offsets import OffsetTable
from remoting.command import Command
from remoting.server import Connection


def _never(_request: Command) -> Came | None:
    """Of nothing it is known when it came: there is one way only."""
    return None


class Origins:
    """Reads that from requests. `came`: see broker/deadlines.py."""

    def __init__(
        self,
        clients: ClientTable | None = None,
        came: Callable[[Command], Came | None] | None = None,
        from_member: FromMember = lambda _connection: True,
    ) -> None:
        self._clients = clients
        self._from_member = from_member
        self.came = _never if came is None else came

    def client(self, connection: Connection, request: Command, group: str) -> Committer:
        """Return whom a commit comes from: with what another member passed on, its connection is no client's.

        What only says that a member passed it on is nobody's: it names whom it likes.
        """
        if not request.flag & HOP_FLAG:
            return connection
        if not self._from_member(connection):
            return ANYBODY
        name = request.ext.get(CLIENT_ID)
        member = self._clients.find(group, name) if name and self._clients is not None else None
        return ANYBODY if member is None else cast(Committer, member.connection)

    def pulled(
        self,
        connection: Connection,
        request: Command,
        place: tuple[str, str, int],
        offset: int,
        end: int,
        offsets: OffsetTable,
    ) -> None:
        """Take the offset that a pull brings along, of (group, topic, queue id); `end` is that queue's."""
        client = self.client(connection, request, place[0])
        with suppress(DoubtfulCommit):
            offsets.commit(*place, offset, end, client, self.came(request))
