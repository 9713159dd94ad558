"""Addresses as text and as record bytes."""

import pytest

from remoting.address import format_address, host_bytes, parse_address, parse_addresses


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9876", ("127.0.0.1", 9876)),
        (" broker-a.local:10911 ", ("broker-a.local", 10911)),
        ("[::1]:9876", ("::1", 9876)),
    ],
)
def test_addresses_are_read_and_written(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address
    assert format_address(*address) == text.strip()


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:x", "host:0", "host:65536", "host:٣", "::1:9876"])
def test_what_is_no_address_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is no address"):
        parse_address(text)


def test_lists_are_separated_by_semicolons_or_commas() -> None:
    assert parse_addresses("a:1;b:2, c:3;") == [("a", 1), ("b", 2), ("c", 3)]


@pytest.mark.parametrize(
    ("host", "packed"),
    [
        ("10.1.2.3", bytes([10, 1, 2, 3])),
        ("::ffff:10.1.2.3", bytes([10, 1, 2, 3])),
        ("::1", bytes(15) + b"\x01"),
        ("fe80::1%eth0", bytes([0xFE, 0x80]) + bytes(13) + b"\x01"),
        ("", bytes(4)),
    ],
)
def test_hosts_are_packed_as_records_hold_them(host: str, packed: bytes) -> None:
    assert host_bytes(host, 10911) == packed + bytes([0, 0, 0x2A, 0x9F])
