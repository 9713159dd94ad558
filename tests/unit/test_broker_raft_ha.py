"""Code 907 in a Raft group: broker/raft_group/ha_status.py."""

from typing import Any, cast

from broker.raft_group.ha_status import GroupHaStatus
from remoting.bodies.registry import HARuntimeInfo
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.server import Connection

GAP = 500


class Entries:
    """Entries of 100 bytes; the seventh cannot be read."""

    def end_position(self, index: int) -> int:
        if index == 7:
            raise LookupError(index)
        return index * 100


def peer(match: int, *, probing: bool = False) -> dict[str, Any]:
    return {"match": match, "next": match + 1, "probing": probing}


def asked(**known: Any) -> HARuntimeInfo:
    status = {
        "base": 3,
        "last": 20,
        "end": 2000,
        "commit": 19,
        "leaderAddress": None,
        "peers": {},
        "members": [],
        **known,
    }
    handler = GroupHaStatus(lambda: status, Entries(), lambda: GAP)
    request = Command.request(RequestCode.GET_BROKER_HA_STATUS)
    answer = handler.table()[RequestCode.GET_BROKER_HA_STATUS](cast("Connection", None), request)
    assert isinstance(answer, Command)
    assert answer.code == 0
    return HARuntimeInfo.decode(bytes(answer.body))


def test_a_leader_tells_how_far_each_follower_is() -> None:
    names = ("self", "near", "far", "apart", "probed", "copied", "torn")
    members = [{"id": name, "address": f"{name}:1", "linked": name != "apart"} for name in names]
    peers = {
        "near": peer(19),
        "far": peer(4),
        "apart": peer(20),
        "probed": peer(20, probing=True),
        "copied": peer(0),
        "torn": peer(7),
    }
    info = asked(leads=True, members=members, peers=peers)
    assert (info.master, info.masterCommitLogMaxOffset, info.inSyncSlaveNums) == (True, 2000, 1)
    found = {each.addr: (each.slaveAckOffset, each.diff, each.inSync) for each in info.haConnectionInfo}
    assert found == {
        "near:1": (1900, 100, True),
        "far:1": (400, 1600, False),
        "apart:1": (2000, 0, False),
        "probed:1": (2000, 0, False),
        "copied:1": (0, 2000, False),
        "torn:1": (0, 2000, False),
    }
    assert info.haConnectionInfo[0].transferFromWhere == 1900


def test_a_follower_tells_how_far_it_is_itself() -> None:
    info = asked(leads=False, leaderAddress="10.0.0.1:10911")
    client = info.haClientRuntimeInfo
    assert (info.master, info.masterCommitLogMaxOffset) == (False, 1900)
    assert (client.masterAddr, client.maxOffset, client.masterFlushOffset) == ("10.0.0.1:10911", 2000, 1900)
    assert client.activated
    assert client.isActivated
    assert not asked(leads=False).haClientRuntimeInfo.activated
