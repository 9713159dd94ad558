"""Bodies about master and slaves."""

import msgspec

from remoting.bodies.base import Body


class HAConnectionInfo(Body, msgspec.Struct):
    """A slave as its master sees it; `diff` in bytes, `transferFromWhere` is the position that is sent next."""

    addr: str = ""
    slaveAckOffset: int = 0
    diff: int = 0
    inSync: bool = False
    transferredByteInSecond: int = 0
    transferFromWhere: int = 0


class HAClientInfo(Body, msgspec.Struct):
    """A slave as it sees itself; times in ms since the epoch.

    `activated`: connected to its master. RocketMQ's JSON libraries name that in two ways, so it stands here twice.
    """

    masterAddr: str | None = None
    transferredByteInSecond: int = 0
    maxOffset: int = 0
    lastReadTimestamp: int = 0
    lastWriteTimestamp: int = 0
    masterFlushOffset: int = 0
    activated: bool = False
    isActivated: bool = False


class HARuntimeInfo(Body, msgspec.Struct):
    """Code 907's answer, of a master and of a slave."""

    master: bool = False
    masterCommitLogMaxOffset: int = 0
    inSyncSlaveNums: int = 0
    haConnectionInfo: list[HAConnectionInfo] = []
    haClientRuntimeInfo: HAClientInfo = msgspec.field(default_factory=HAClientInfo)
