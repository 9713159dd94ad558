"""The dataVersion of a table: what one more change makes of it, and how operations carry it."""

from remoting.bodies.registry import DataVersion


def next_version(version: DataVersion, now_ms: int, term: int) -> DataVersion:
    """Return a table's version after one more change; its stateVersion never falls (R15)."""
    return version.next(now_ms, max(version.stateVersion, term))


def packed(version: DataVersion) -> list[int]:
    """Return a version as operations carry it."""
    return [version.counter, version.stateVersion, version.timestamp]


def unpacked(fields: list[int], current: DataVersion) -> DataVersion:
    """Return the version that an operation sets; its stateVersion never falls (R15)."""
    counter, state, timestamp = fields
    return DataVersion(counter, max(state, current.stateVersion), timestamp)
