"""Code 907, mqadmin's haStatus, asked of a member of a Raft group: the group in the words of master and slaves.

The leader stands for the master, with a connection for each other member; a follower for a slave. A member that is not
linked, whose log is not yet found equal, or that is further behind than haMaxGapNotInSync, is not in sync. What a group
does not measure is 0: bytes a second, and times of a follower. RaftMQ's own view is code 9101 (raft-status).
"""

from collections.abc import Callable
from typing import Any, Protocol

from broker.reply import ok
from remoting.bodies.ha import HAClientInfo, HAConnectionInfo
from remoting.bodies.registry import HARuntimeInfo
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.server import Connection, Handler


class Positions(Protocol):
    """What is needed of the log of entries."""

    def end_position(self, index: int) -> int:
        """Return the position behind an entry that is kept; LookupError for one that cannot be read."""
        ...


class GroupHaStatus:
    """The handler of 907 in a group."""

    def __init__(self, status: Callable[[], dict[str, Any]], entries: Positions, max_gap: Callable[[], int]) -> None:
        """`status`: what RaftGroup.status returns; `max_gap`: haMaxGapNotInSync, bytes."""
        self._status = status
        self._entries = entries
        self._max_gap = max_gap

    def table(self) -> dict[int, Handler]:
        """Return the handler by request code."""
        return {RequestCode.GET_BROKER_HA_STATUS: self.ha_status}

    def ha_status(self, _connection: Connection, _request: Command) -> Command:
        """907: how far the followers are, or this one is."""
        known = self._status()
        return ok(body=(self._leader(known) if known["leads"] else self._follower(known)).encode())

    def _leader(self, known: dict[str, Any]) -> HARuntimeInfo:
        found = [self._connection(known, each) for each in known["members"] if each["id"] in known["peers"]]
        return HARuntimeInfo(
            master=True,
            masterCommitLogMaxOffset=known["end"],
            inSyncSlaveNums=sum(each.inSync for each in found),
            haConnectionInfo=found,
        )

    def _connection(self, known: dict[str, Any], member: dict[str, Any]) -> HAConnectionInfo:
        peer = known["peers"][member["id"]]
        acked = self._position(known, peer["match"])
        behind = known["end"] - acked
        return HAConnectionInfo(
            addr=member["address"],
            slaveAckOffset=acked,
            diff=behind,
            inSync=member["linked"] and not peer["probing"] and behind <= self._max_gap(),
            transferFromWhere=self._position(known, peer["next"] - 1),
        )

    def _follower(self, known: dict[str, Any]) -> HARuntimeInfo:
        committed = self._position(known, known["commit"])
        follows = known["leaderAddress"] is not None
        return HARuntimeInfo(
            master=False,
            masterCommitLogMaxOffset=committed,
            haClientRuntimeInfo=HAClientInfo(
                masterAddr=known["leaderAddress"],
                maxOffset=known["end"],
                masterFlushOffset=committed,
                activated=follows,
                isActivated=follows,
            ),
        )

    def _position(self, known: dict[str, Any], index: int) -> int:
        """Return where an entry ends, 0 when this log does not know it."""
        if not known["base"] <= index <= known["last"]:
            return 0
        try:
            return self._entries.end_position(index)
        except LookupError:
            return 0
