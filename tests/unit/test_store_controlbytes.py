"""A control record is believed only with the very bytes that would be written for it."""

import struct

import pytest

from raft.protocol.types import EntryType
from remoting.record import HEADS, SYSFLAG_AT
from store import controlrecord
from store.controlrecord import Control, ControlError, decode_control, encode_control
from tests.parts.store_tools import HOST, HOST_V6

PLAIN = Control(
    7, 4096, 0, 1_700_000_000_000, EntryType.META, 0, 3, 2, 0, 0, 0, 5, 1, 0xDEADBEEF, b"a payload"
)  # fmt: skip


@pytest.mark.parametrize("host", [HOST, HOST_V6])
def test_a_byte_that_changed_is_met_as_if_the_record_was_written_again(host: bytes) -> None:
    written = encode_control(PLAIN, host)
    assert encode_control(decode_control(written), host) == written
    refused = 0
    for at in range(4, len(written)):
        for value in {0, 1, 0x80, 0xFF, written[at] ^ 1, written[at] ^ 0x80} - {written[at]}:
            bad = written[:at] + bytes([value]) + written[at + 1 :]
            assert _is_believed(bad) == _is_as_written_again(bad), (at, value)
            refused += not _is_believed(bad)
    # Index, position and what the chain covers is not its business; the rest is.
    assert refused > len(written) * 3


def _is_believed(data: bytes) -> bool:
    try:
        decode_control(data)
    except (ControlError, struct.error, IndexError, KeyError):
        return False
    return True


def _is_as_written_again(data: bytes) -> bool:
    """The dumb twin: write what was read, and compare."""
    try:
        if not controlrecord.is_control(data, 0):
            return False
        head = HEADS[controlrecord._SYSFLAG.unpack_from(data, SYSFLAG_AT)[0] & controlrecord._HOST_BITS]
        fields = head.unpack_from(data)
        control = controlrecord._control(data, head.size, fields, head.size)
        return encode_control(control, fields[11]) == data[: control.size]
    except (ControlError, struct.error, IndexError, KeyError):
        return False


def test_reading_a_control_record_writes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    written = encode_control(PLAIN, HOST)

    def refuse(*_: object) -> bytes:
        raise AssertionError("written again")

    monkeypatch.setattr(controlrecord, "encode_control", refuse)
    assert decode_control(written).payload == PLAIN.payload
