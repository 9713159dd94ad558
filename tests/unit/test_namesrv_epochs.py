"""namesrv/epochs.py: the highest epoch of a broker name outlives who had it (R15)."""

from typing import Any

import orjson
import pytest

from namesrv.routes import Address, Registered, RouteTable
from remoting.bodies.registry import DataVersion
from runtime.clock import ManualClock
from tests.unit.test_namesrv_handlers import BROKER, Desk, desk
from tests.unit.test_namesrv_routes import addresses, claim, clock, table

__all__ = ["clock", "desk", "table"]


@pytest.mark.parametrize("how", ["unregistered", "disconnected", "silent"])
def test_R15_a_deposed_master_is_refused_while_the_one_in_its_place_is_gone(
    table: RouteTable, clock: ManualClock, how: str
) -> None:
    table.register(claim(address="new:1", version=epoch(7), link="new"))
    if how == "unregistered":
        table.unregister(Address("C", "new:1"), "a")
    elif how == "disconnected":
        table.disconnect("new")
    else:
        clock.advance(1000)
        table.expire()
    assert addresses(table) == {}
    # It learns who was promoted, although nobody answers there.
    assert table.register(claim(address="old:1", version=epoch(6))) == Registered("new:1", "")
    assert table.route("t") is None
    assert table.live == {}
    # A slave of it registers, and the one in its place comes back.
    table.register(claim(2, version=epoch(6)))
    table.register(claim(address="new:1", version=epoch(7)))
    assert addresses(table)[0] == "new:1"
    # Promoted above it, the old one is taken again.
    assert table.register(claim(address="old:1", version=epoch(8))) == Registered()
    assert addresses(table)[0] == "old:1"


def test_R15_an_address_that_had_the_highest_epoch_may_begin_a_new_store(table: RouteTable) -> None:
    table.register(claim(address="new:1", version=epoch(7)))
    assert table.register(claim(address="new:1", version=epoch(0))) == Registered()
    # Which makes a deposed one no more welcome.
    assert table.register(claim(address="old:1", version=epoch(6))).master_address == "new:1"


def test_R15_an_administrator_has_an_epoch_forgotten(table: RouteTable) -> None:
    table.register(claim(address="new:1", version=epoch(7)))
    table.unregister(Address("C", "new:1"), "a")
    assert table.epochs.forget("a")
    assert not table.epochs.forget("a")
    assert table.register(claim(address="old:1", version=epoch(0))) == Registered()


def test_the_members_that_a_name_had_are_remembered(table: RouteTable) -> None:
    for number in range(3):
        table.register(claim(number))
    table.unregister(Address("C", "10.0.0.2:10911"), "a")
    # It has another id now.
    table.register(claim(0, "10.0.0.1:10911", version=epoch(1)))
    assert table.epochs.members("a") == {0: "10.0.0.1:10911", 2: "10.0.0.2:10911"}


def test_at_the_limit_the_name_that_was_away_longest_is_forgotten() -> None:
    table = RouteTable(ManualClock(), topics_per_broker_max=10, brokers_max=2, epochs_max=3)
    for name in ("stays", "first", "second", "third", "fourth"):
        table.register(claim(address=f"{name}:1", broker_name=name, version=epoch(3), link=name))
        if name != "stays":
            table.disconnect(name)
    assert len(table.epochs) == 3
    known = {name: table.epochs.of(name).version for name in ("stays", "first", "second", "third", "fourth")}
    assert known == {"stays": 3, "first": 0, "second": 0, "third": 3, "fourth": 3}


def epoch(number: int) -> DataVersion:
    return DataVersion(1, number, 100)


def test_9121_and_9122_tell_and_forget_the_highest_epoch_of_a_name(desk: Desk) -> None:
    def asked(code: int) -> Any:
        return orjson.loads(bytes(desk.ask(code, body=b'{"broker": "a"}').body))

    nothing = {"epoch": 0, "holder": "", "members": {}}
    assert asked(9121) == nothing
    desk.register("t", "u", version=DataVersion(1, 4, 1))
    desk.ask(104, {**BROKER, "brokerId": "0"})
    assert asked(9121) == {"epoch": 4, "holder": BROKER["brokerAddr"], "members": {"0": BROKER["brokerAddr"]}}
    assert [asked(9122), asked(9122)] == [{"known": True}, {"known": False}]
    assert asked(9121) == nothing


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"broker": 1}', b'{"broker": "' + b"x" * 5000 + b'"}', b"\xff"])
@pytest.mark.parametrize("code", [9121, 9122])
def test_a_body_that_names_no_broker_is_refused(desk: Desk, code: int, body: bytes) -> None:
    assert desk.refusal(code, body=body)[0] == 29
