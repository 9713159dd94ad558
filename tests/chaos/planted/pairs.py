"""Bugs of the classic modes: a single broker that syncs, a master that waits for its slave, a slave."""

from typing import Any

from broker.master_slave.ha_link import HaLink
from broker.master_slave.ha_server import HaServer
from broker.master_slave.local_replication import LocalReplication, Turn
from store.slave.slavelog import SlaveLog
from tests.chaos.planted.grafts import graft, once_in

# Bytes that a slave is pushed before the master stops.
PUSHED_BYTES_MAX = 400_000


def acknowledge_before_flush() -> None:
    """Answer senders of a broker with SYNC_FLUSH when their messages are written; they are flushed some time."""

    def make(_honest: Any) -> Any:
        def answer(self: LocalReplication, turn: list[Turn], results: list[Any]) -> None:
            self._safe_end = self._put_end
            self._complete(turn, results)
            self._check_empty()

        return answer

    graft(LocalReplication, "_await_flush", make)


def acknowledge_without_slave() -> None:
    """Count on slaves that have been sent nothing for a while, as if what is written were theirs too."""

    def make_acked(_honest: Any) -> Any:
        def acked_by(self: HaServer, _slaves: int) -> int:
            return self.log.log_range()[1]

        return acked_by

    def make_push(honest: Any) -> Any:
        def push(self: HaLink) -> None:
            if self.sent < PUSHED_BYTES_MAX:
                honest(self)

        return push

    graft(HaServer, "acked_by", make_acked)
    graft(HaLink, "push", make_push)


def write_other_bytes_as_slave() -> None:
    """Change a byte of what the master pushes now and then, behind the check and before it is written."""
    now = once_in(60)

    def make(honest: Any) -> Any:
        def write(self: SlaveLog, data: bytes) -> None:
            if now():
                spoilt = bytearray(data)
                spoilt[len(spoilt) // 2] ^= 0x20
                data = bytes(spoilt)
            honest(self, data)

        return write

    graft(SlaveLog, "_write", make)
