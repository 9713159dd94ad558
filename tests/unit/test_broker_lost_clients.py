"""broker/messages/lost_clients.py, by what the table of clients tells: who is lost, for how long, and who is back."""

import pytest

from broker.clients import ClientTable
from broker.messages import lost_clients
from broker.messages.lost_clients import LOST_SECONDS, LostClients
from remoting.bodies.registry import HeartbeatData, ProducerData
from remoting.command import Command
from runtime.clock import ManualClock
from runtime.late import late


class Channel:
    closed = False
    peer = ("127.0.0.1", 1)

    def send_oneway(self, request: Command) -> None:
        raise AssertionError(request)


class Setting:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.lost: LostClients
        self.table = ClientTable(
            self.clock,
            later=lambda _seconds, call: call(),
            notifies=lambda _group: False,
            on_leave=lambda _group, _client: None,
            on_reach=late(lambda: self.lost.noted),
        )
        self.lost = LostClients(self.table, self.clock, lambda _seconds, call: call())
        self.calls: list[str] = []

    def beat(self, client_id: str, channel: Channel | None = None) -> Channel:
        made = Channel() if channel is None else channel
        self.table.heartbeat(made, HeartbeatData(clientID=client_id, producerDataSet=[ProducerData("P")]), 0, 1)
        return made


def test_who_ends_without_a_word_is_lost_for_a_moment() -> None:
    setting = Setting()
    assert not setting.lost.lost("A")
    one, two = setting.beat("A"), setting.beat("A")
    setting.table.on_close(one)
    assert not setting.lost.lost("A"), "it has another connection"
    setting.table.on_close(two)
    assert setting.lost.lost("A")
    setting.clock.advance(LOST_SECONDS + 0.1)
    assert not setting.lost.lost("A")
    setting.table.on_close(setting.beat("A"))
    assert setting.lost.lost("A")
    setting.beat("A")
    assert not setting.lost.lost("A")


def test_who_says_good_bye_is_not_lost() -> None:
    setting = Setting()
    channel = setting.beat("A")
    setting.table.unregister(channel, "P", None)
    setting.table.on_close(channel)
    assert not setting.lost.lost("A")


def test_who_waits_for_one_is_called_once_when_it_is_back() -> None:
    setting = Setting()
    setting.table.on_close(setting.beat("A"))
    forget = setting.lost.when_back("A", lambda: setting.calls.append("forgotten"))
    setting.lost.when_back("A", lambda: setting.calls.append("called"))
    forget()
    forget()
    setting.beat("B")
    assert setting.calls == []
    setting.table.on_close(setting.beat("A"))
    setting.beat("A")
    assert setting.calls == ["called"]


def test_how_many_are_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_clients, "LOST_MAX", 3)
    setting = Setting()
    for name in "ABCDE":
        setting.table.on_close(setting.beat(name))
    assert [name for name in "ABCDE" if setting.lost.lost(name)] == ["C", "D", "E"]
