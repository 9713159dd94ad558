"""Bugs planted into a member of the torture's negative control, which must lose data or the torture proves nothing."""

from store.entrylog import EntryLog


def ack_before_fsync() -> None:
    """Let a member call an entry durable as soon as it is written."""

    def written(self: EntryLog) -> int:
        return int(self.last.index)

    # A property in place of an attribute: whoever asks is told what is in the page cache.
    EntryLog.durable = property(written, lambda _self, _value: None)  # type: ignore[assignment]
