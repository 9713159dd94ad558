"""Hosts and message ids."""

import threading

import pytest

from remoting.msgid import UniqKeys, offset_msg_id, pack_host, parse_offset_msg_id, unpack_host


def test_offset_id_is_rocketmqs() -> None:
    """The id that an official client decoded for a record at 1000 of 10.1.2.4:10911."""
    text = offset_msg_id(pack_host("10.1.2.4", 10911), 1000)
    assert text == "0A01020400002A9F00000000000003E8"
    assert parse_offset_msg_id(text) == (("10.1.2.4", 10911), 1000)
    assert parse_offset_msg_id(text.lower()) == (("10.1.2.4", 10911), 1000)


def test_ipv6_hosts_take_twenty_bytes() -> None:
    host = pack_host("fd00::1", 10911)
    assert len(host) == 20
    assert unpack_host(host) == ("fd00::1", 10911)
    text = offset_msg_id(host, 7)
    assert len(text) == 56
    assert parse_offset_msg_id(text) == (("fd00::1", 10911), 7)
    assert pack_host("fe80::1%eth0", 1) == pack_host("fe80::1", 1)


@pytest.mark.parametrize("text", ["", "0A", "zz" * 16, "0A01020400002A9F00000000000003E", "0 " * 16])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no message id"):
        parse_offset_msg_id(text)


def test_what_is_no_host_is_refused() -> None:
    with pytest.raises(ValueError, match="not an IP address"):
        pack_host("localhost", 1)
    with pytest.raises(ValueError, match="8 or 20"):
        unpack_host(b"123")


def test_unique_keys_never_repeat() -> None:
    keys = UniqKeys("10.0.0.7", pid=0x12345, instance=0xCAFE)
    many = [keys.next() for _ in range(70_000)]
    assert len(set(many)) == len(many), "more than the counter can tell apart"
    assert all(key.startswith("0A000007" + "2345" + "0000CAFE") and len(key) == 32 for key in many[:100])


def test_unique_keys_of_one_process_differ() -> None:
    made: list[str] = []
    threads = [threading.Thread(target=lambda: made.append(UniqKeys().next())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 8


def test_unique_keys_with_ipv6_are_longer() -> None:
    assert len(UniqKeys("fd00::1").next()) == 56
