"""Hosts as bytes, and the two kinds of message ids.

* The offset id names a place: store host and CommitLog position, 32 (IPv4) or 56 (IPv6) upper-case hex digits.
* The unique key (property UNIQ_KEY) names a message before it is stored: made by the client, of the same two lengths.
"""

import os
import socket
import struct
import time
from datetime import UTC, datetime

_PORT = struct.Struct(">i")
_OFFSET = struct.Struct(">q")
_UNIQ_TAIL = struct.Struct(">iH")


def pack_host(ip: str, port: int) -> bytes:
    """Return 4 or 16 bytes of address and the port as int32: BORNHOST and STOREHOST of a record.

    Raises ValueError when `ip` is neither an IPv4 nor an IPv6 address.
    """
    try:
        # A scope (fe80::1%eth0) means nothing on another machine.
        packed = socket.inet_pton(socket.AF_INET6, ip.partition("%")[0]) if ":" in ip else socket.inet_aton(ip)
    except OSError as error:
        raise ValueError(f"{ip!r} is not an IP address") from error
    return packed + _PORT.pack(port)


def unpack_host(data: bytes | memoryview) -> tuple[str, int]:
    """Return (address, port) of 8 or 20 bytes; ValueError for any other length."""
    data = bytes(data)
    if len(data) == 8:
        return f"{data[0]}.{data[1]}.{data[2]}.{data[3]}", _PORT.unpack_from(data, 4)[0]
    if len(data) == 20:
        return socket.inet_ntop(socket.AF_INET6, data[:16]), _PORT.unpack_from(data, 16)[0]
    raise ValueError(f"a host takes 8 or 20 bytes, not {len(data)}")


def offset_msg_id(store_host: bytes, physical_offset: int) -> str:
    """Return the offset id of the record at `physical_offset`; `store_host` as pack_host makes it."""
    return (store_host + _OFFSET.pack(physical_offset)).hex().upper()


def parse_offset_msg_id(text: str) -> tuple[tuple[str, int], int]:
    """Return ((address, port), physical offset); ValueError when `text` is no offset id."""
    if len(text) not in {32, 56}:
        raise ValueError(f"{text!r} is no message id: it takes 32 or 56 hex digits")
    try:
        data = bytes.fromhex(text)
    except ValueError:
        raise ValueError(f"{text!r} is no message id: it takes 32 or 56 hex digits") from None
    if len(data) * 2 != len(text):
        raise ValueError(f"{text!r} is no message id: it takes 32 or 56 hex digits")
    return unpack_host(data[:-8]), _OFFSET.unpack_from(data, len(data) - 8)[0]


class UniqKeys:
    """Makes unique keys: address, process, instance, milliseconds since the start of the month, counter.

    65,536 keys a millisecond are distinct; the milliseconds never go back within one instance.
    """

    def __init__(self, ip: str = "127.0.0.1", *, pid: int | None = None, instance: int | None = None) -> None:
        address = pack_host(ip, 0)[:-4]
        process = (os.getpid() if pid is None else pid) & 0xFFFF
        # Java puts its class loader's hash here; what matters is that two instances of one process differ.
        mark = int.from_bytes(os.urandom(4), "big") if instance is None else instance & 0xFFFFFFFF
        self._prefix = (address + process.to_bytes(2, "big") + mark.to_bytes(4, "big")).hex().upper()
        self._counter = 0
        self._month_start_ms = 0
        self._month_end_ms = 0
        self._last_ms = 0

    def next(self) -> str:
        """Return a new unique key."""
        now = time.time_ns() // 1_000_000
        if not self._month_start_ms <= now < self._month_end_ms:
            self._enter_month(now)
        elapsed = max(now - self._month_start_ms, self._last_ms)
        self._counter = (self._counter + 1) & 0xFFFF
        if self._counter == 0:
            # All counter values of a millisecond are used up at the earliest here: never meet them again.
            elapsed += 1
        self._last_ms = elapsed
        return self._prefix + _UNIQ_TAIL.pack(elapsed & 0x7FFFFFFF, self._counter).hex().upper()

    def _enter_month(self, now_ms: int) -> None:
        now = datetime.fromtimestamp(now_ms / 1000, UTC)
        start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        end = start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
        self._month_start_ms = int(start.timestamp() * 1000)
        self._month_end_ms = int(end.timestamp() * 1000)
        self._last_ms = 0
