"""The newest entries of the log in memory: what live replication, acknowledgement and dispatch ask for all the time."""

from collections import OrderedDict

from store.controlrecord import Control

# Bytes of newest entries kept as they were written, for followers that keep up and for dispatch.
TAIL_BYTES_MAX = 32 * 1024 * 1024
# Control records kept, about 400 bytes each.
CONTROLS_MAX = 16_384


class EntryCache:
    """A window of dense entries that ends with the last one; both parts lose their oldest when they are full."""

    def __init__(self, *, bytes_max: int = TAIL_BYTES_MAX, controls_max: int = CONTROLS_MAX) -> None:
        self._bytes_max = bytes_max
        self._controls_max = controls_max
        # Their first item is found at once, however many were taken out before it; that of a dict is not.
        self._controls: OrderedDict[int, Control] = OrderedDict()
        self._data: OrderedDict[int, bytes | memoryview] = OrderedDict()
        self._bytes = 0
        self.control = self._controls.get
        self.data = self._data.get

    @property
    def data_bytes(self) -> int:
        """Bytes of entries held."""
        return self._bytes

    def add(self, control: Control, data: bytes | memoryview) -> None:
        """Keep the entry behind the last one."""
        self._controls[control.index] = control
        self._data[control.index] = data
        self._bytes += len(data)
        while self._bytes > self._bytes_max:
            self._bytes -= len(self._data.popitem(last=False)[1])
        if len(self._controls) > self._controls_max:
            self._controls.popitem(last=False)

    def forget(self, index: int) -> None:
        """Forget one entry."""
        if self._controls.pop(index, None) is not None:
            self._bytes -= len(self._data.pop(index, b""))

    def cut(self, last: int) -> None:
        """Forget every entry behind `last`."""
        for index in [index for index in reversed(self._controls) if index > last]:
            del self._controls[index]
        for index in [index for index in reversed(self._data) if index > last]:
            self._bytes -= len(self._data.pop(index))
