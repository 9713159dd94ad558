"""Hellos for tests: one that is right, and what to change in it."""

from typing import Any

from raft.protocol.hello import Hello

GROUP_ID = b"G" * 16


def store_id(number: int, disk: int = 0) -> bytes:
    return bytes([number, disk]) * 8


def hello(number: int, **changes: Any) -> Hello:
    """The hello of member nNUMBER with an empty store; `changes` are fields."""
    return Hello(
        group="RaftNode00",
        self_id=f"n{number}",
        store_id=store_id(number),
        group_id=b"",
        last_index=0,
        last_term=0,
        base_index=0,
        base_position=0,
        empty=True,
        has_log=False,
        log_file_bytes=1 << 30,
        flush_sync=True,
        clock_ms=1_700_000_000_000,
    )._replace(**changes)


def grouped(number: int, **changes: Any) -> Hello:
    """The hello of a member whose log holds a group's entries."""
    fields = {"group_id": GROUP_ID, "last_index": 9, "last_term": 2, "empty": False, "has_log": True, "config_index": 1}
    return hello(number, **(fields | changes))
