"""remoting/per_address.py: how many connections an address may have."""

from remoting.per_address import PerAddress


def test_one_at_its_limit_costs_nobody_else() -> None:
    table = PerAddress(2)
    assert [table.enter("10.0.0.1") for _ in range(3)] == [True, True, False]
    assert table.enter("10.0.0.2")
    table.leave("10.0.0.1")
    assert table.enter("10.0.0.1")


def test_the_addresses_of_one_ipv6_network_are_one() -> None:
    table = PerAddress(1)
    assert table.enter("2001:db8::1")
    assert not table.enter("2001:db8::2")
    assert table.enter("2001:db8:0:1::1")


def test_loopback_is_not_limited() -> None:
    table = PerAddress(1)
    assert all(table.enter(host) for host in ("127.0.0.1", "127.0.0.2", "::1", "::ffff:127.0.0.1") for _ in range(9))


def test_who_has_gone_leaves_nothing_behind() -> None:
    table = PerAddress(1)
    for number in range(1000):
        host = f"10.0.{number // 250}.{number % 250}"
        assert table.enter(host)
        table.leave(host)
    assert not table._open
