"""broker/clients.py: members come with heartbeats, leave with their connection, and the others are told once."""

from collections.abc import Callable, Mapping

import pytest

from broker.admin.client_handlers import (
    CLIENT_ID_CHARS_MAX,
    GROUPS_PER_CLIENT_MAX,
    SUBSCRIPTIONS_PER_CLIENT_MAX,
    SUBSCRIPTIONS_PER_GROUP_MAX,
    check_size,
)
from broker.clients import HEARTBEAT_BYTES_MAX, NOTICE_S_MAX, ClientTable
from remoting.bodies.registry import ConsumerData, ConsumerIdList, HeartbeatData, ProducerData, SubscriptionData
from remoting.codes import LanguageCode, RequestCode
from remoting.command import Command
from remoting.errors import CommandError, ConnectionLost
from runtime.clock import ManualClock

JAVA = int(LanguageCode.JAVA)


class Peer:
    def __init__(self) -> None:
        self.closed = False
        self.peer = ("192.0.2.1", 1)
        self.told: list[str] = []

    def send_oneway(self, request: Command) -> None:
        if self.closed:
            raise ConnectionLost("closed")
        assert request.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        assert request.is_oneway
        self.told.append(request.ext["consumerGroup"])


class Setting:
    def __init__(self, *, notifies: bool = True) -> None:
        self.clock = ManualClock()
        self.calls: list[tuple[float, Callable[[], None]]] = []
        self.left: list[tuple[str, str]] = []
        self.table = ClientTable(
            self.clock,
            later=lambda seconds, call: self.calls.append((seconds, call)),
            notifies=lambda _group: notifies,
            on_leave=lambda group, client_id: self.left.append((group, client_id)),
        )

    def run(self) -> int:
        """Do what was put off, as if its time had come."""
        calls = self.calls.copy()
        self.calls.clear()
        for seconds, call in calls:
            self.clock.advance(seconds)
            call()
        return len(calls)

    def beat(
        self,
        peer: Peer,
        client_id: str,
        topics: Mapping[str, str] | None = None,
        *,
        group: str = "G",
        version: int = 1,
        without_sub: bool = False,
    ) -> bool:
        subscriptions = [
            SubscriptionData(topic=topic, subString=text, subVersion=version)
            for topic, text in (topics or {"T": "*"}).items()
        ]
        data = HeartbeatData(
            clientID=client_id,
            consumerDataSet=[ConsumerData(groupName=group, subscriptionDataSet=[] if without_sub else subscriptions)],
            producerDataSet=[ProducerData("P")],
            withoutSub=without_sub,
        )
        return self.table.heartbeat(peer, data, JAVA, 479)


def test_a_heartbeat_makes_a_member() -> None:
    setting, peer = Setting(), Peer()
    assert setting.beat(peer, "one")
    assert not setting.beat(peer, "one")
    assert setting.table.consumer_ids("G") == ["one"]
    assert [member.client_id for member in setting.table.producers("P")] == ["one"]
    assert setting.table.groups_subscribed_to("T") == ["G"]
    assert (setting.table.client_id(peer), setting.table.client_id(Peer())) == ("one", None)
    assert setting.table.consumes(peer, "G")
    assert not setting.table.consumes(peer, "H")
    assert not setting.table.consumes(Peer(), "G")
    member = setting.table.find("G", "one")
    assert member is not None
    assert (member.language, member.version) == (JAVA, 479)


def test_members_are_told_once_a_turn() -> None:
    setting, one, two = Setting(), Peer(), Peer()
    setting.beat(one, "one")
    setting.beat(two, "two")
    assert setting.run() == 1
    assert (one.told, two.told) == (["G"], ["G"])
    setting.beat(two, "two")
    assert setting.run() == 0


def test_a_thousand_that_join_are_told_some_times_and_not_a_thousand_times_each() -> None:
    setting = Setting()
    peers = [Peer() for _ in range(1000)]
    ran = 0
    for number, peer in enumerate(peers):
        setting.beat(peer, f"client-{number}")
        setting.clock.advance(0.002)
        if setting.clock.monotonic() >= due(setting):
            ran += setting.run()
    ran += setting.run()
    assert max(len(peer.told) for peer in peers) == ran < 100
    assert all(peer.told for peer in peers), "also the last one hears of itself"
    assert not setting.calls


def due(setting: Setting) -> float:
    """Return when what was put off last is to be done: a call is put off by the time between two notices."""
    group = setting.table.consumer_group("G")
    assert group is not None
    return group.quiet_until


def test_a_change_after_a_calm_is_told_at_once_and_never_kept_back_for_long() -> None:
    setting, one = Setting(), Peer()
    for number in range(5000):
        setting.beat(Peer(), f"client-{number}")
    setting.run()
    setting.beat(one, "one")
    assert [seconds for seconds, _ in setting.calls] == [NOTICE_S_MAX]
    setting.run()
    setting.clock.advance(NOTICE_S_MAX)
    setting.table.on_close(one)
    assert [seconds for seconds, _ in setting.calls] == [0.0]


def test_the_list_of_members_is_written_once_and_anew_after_each_change() -> None:
    setting, one, two = Setting(), Peer(), Peer()
    table = setting.table
    assert table.consumer_list("G") == b""
    setting.beat(one, "one")
    setting.beat(two, "two")
    written = table.consumer_list("G")
    assert ConsumerIdList.decode(written).consumerIdList == ["one", "two"] == table.consumer_ids("G")
    setting.beat(one, "one")
    assert table.consumer_list("G") is written
    setting.beat(one, "renamed")
    assert ConsumerIdList.decode(table.consumer_list("G")).consumerIdList == ["two", "renamed"]
    table.on_close(two)
    assert ConsumerIdList.decode(table.consumer_list("G")).consumerIdList == ["renamed"]
    table.on_close(one)
    assert table.consumer_list("G") == b""


def test_a_group_that_does_not_want_to_be_told() -> None:
    setting, one = Setting(notifies=False), Peer()
    setting.beat(one, "one")
    setting.run()
    assert one.told == []


def test_a_closed_connection_is_forgotten_at_once() -> None:
    setting, one, two = Setting(), Peer(), Peer()
    setting.beat(one, "one")
    setting.beat(two, "two")
    setting.run()
    two.closed = True
    setting.table.on_close(two)
    setting.table.on_close(two)
    setting.run()
    assert setting.table.consumer_ids("G") == ["one"]
    assert one.told == ["G", "G"]
    assert setting.left == [("G", "two")]
    setting.table.on_close(one)
    assert setting.table.consumer_group("G") is None
    assert setting.table.producer_groups() == {}
    assert not setting.table._joined


def test_the_same_client_on_a_second_connection_keeps_what_it_holds() -> None:
    setting, before, now = Setting(), Peer(), Peer()
    setting.beat(before, "one")
    setting.beat(now, "one")
    assert setting.table.consumer_ids("G") == ["one"]
    setting.table.on_close(before)
    assert setting.left == []
    assert setting.table.consumer_ids("G") == ["one"]
    setting.table.on_close(now)
    assert setting.left == [("G", "one")]


def test_unregistering_leaves_the_named_groups_only() -> None:
    setting, one = Setting(), Peer()
    setting.beat(one, "one")
    setting.beat(one, "one", group="H")
    setting.table.unregister(one, None, "G")
    setting.table.unregister(one, "", "")
    assert setting.table.consumer_groups() == ["H"]
    assert len(setting.table.producers("P")) == 1
    setting.table.unregister(one, "P", None)
    assert setting.table.producers("P") == []
    setting.table.unregister(Peer(), "P", "H")
    assert setting.left == [("G", "one")]


def test_who_keeps_its_locks_when_it_unregisters_keeps_them_when_its_connection_closes_too() -> None:
    setting, one = Setting(), Peer()
    setting.beat(one, "one")
    setting.beat(one, "one", group="H")
    setting.table.unregister(one, None, "G", keeps_locks=True)
    setting.table.on_close(one)
    assert setting.left == [("H", "one")]


def test_topics_that_are_no_longer_wanted_leave_the_subscription() -> None:
    setting, one = Setting(), Peer()
    setting.beat(one, "one", {"T": "*", "U": "A"})
    assert setting.beat(one, "one", {"U": "A"})
    assert setting.table.subscription("G", "T") is None
    assert setting.table.groups_subscribed_to("U") == ["G"]


def test_an_expression_is_replaced_by_a_newer_one_only() -> None:
    setting, one = Setting(), Peer()
    setting.beat(one, "one", {"T": "A"}, version=5)
    assert not setting.beat(one, "one", {"T": "B"}, version=4)
    subscription = setting.table.subscription("G", "T")
    assert subscription is not None
    assert subscription.subString == "A"
    setting.beat(one, "one", {"T": "B"}, version=6)
    subscription = setting.table.subscription("G", "T")
    assert subscription is not None
    assert subscription.subString == "B"


def test_a_heartbeat_without_subscriptions_keeps_them() -> None:
    setting, one = Setting(), Peer()
    setting.beat(one, "one", {"T": "A"})
    assert not setting.beat(one, "one", without_sub=True)
    assert setting.table.subscription("G", "T") is not None
    assert setting.beat(Peer(), "two", without_sub=True)


def test_silent_clients_expire() -> None:
    setting, silent, alive = Setting(), Peer(), Peer()
    setting.beat(silent, "one")
    setting.clock.advance(100)
    setting.beat(alive, "two")
    setting.clock.advance(21)
    assert setting.table.expire(120.0) == [silent]
    assert setting.table.consumer_ids("G") == ["two"]
    assert setting.table.expire(120.0) == []


def test_a_connection_that_fails_does_not_keep_the_others_from_being_told() -> None:
    setting, broken, well = Setting(), Peer(), Peer()
    setting.beat(broken, "one")
    setting.beat(well, "two")
    broken.closed = True
    setting.run()
    assert well.told == ["G"]


def test_a_client_of_too_many_groups_is_refused() -> None:
    groups = [ProducerData(f"P{n}") for n in range(GROUPS_PER_CLIENT_MAX + 1)]
    with pytest.raises(CommandError, match="at most"):
        check_size(HeartbeatData(clientID="x", producerDataSet=groups))
    check_size(HeartbeatData(clientID="x", producerDataSet=groups[1:]))


@pytest.mark.parametrize(
    ("client_id", "subscribed", "why"),
    [
        ("x" * (CLIENT_ID_CHARS_MAX + 1), [1], "a clientID has at most"),
        ("x", [SUBSCRIPTIONS_PER_GROUP_MAX + 1], "a group subscribes to at most"),
        ("x", [SUBSCRIPTIONS_PER_GROUP_MAX] * 2 + [1], "subscribe to at most"),
        ("x" * CLIENT_ID_CHARS_MAX, [SUBSCRIPTIONS_PER_GROUP_MAX] * 2, ""),
    ],
)
def test_what_a_client_may_say_of_itself_is_bounded(client_id: str, subscribed: list[int], why: str) -> None:
    assert SUBSCRIPTIONS_PER_CLIENT_MAX == 2 * SUBSCRIPTIONS_PER_GROUP_MAX
    groups = [
        ConsumerData(groupName=f"G{place}", subscriptionDataSet=[SubscriptionData(topic=f"T{n}") for n in range(count)])
        for place, count in enumerate(subscribed)
    ]
    data = HeartbeatData(clientID=client_id, consumerDataSet=groups)
    if not why:
        check_size(data)
        return
    with pytest.raises(CommandError, match=why):
        check_size(data)


def test_heartbeats_of_all_clients_have_one_bound_and_go_with_their_connections() -> None:
    setting = Setting()
    most = 16 * 1024 * 1024

    def beat(peer: Peer, size: int, *, without_sub: bool = False) -> None:
        data = HeartbeatData(clientID="x", consumerDataSet=[ConsumerData("G")], withoutSub=without_sub)
        setting.table.heartbeat(peer, data, JAVA, 1, size)

    peers = [Peer() for _ in range(HEARTBEAT_BYTES_MAX // most)]
    for peer in peers:
        beat(peer, most)
        beat(peer, most)
    for peer in peers:
        beat(peer, 100, without_sub=True)
    with pytest.raises(CommandError, match="heartbeats take"):
        beat(Peer(), 1)
    setting.table.on_close(peers[0])
    beat(Peer(), most)
    beat(peers[1], 100)
    beat(Peer(), most - 100)
    with pytest.raises(CommandError, match="heartbeats take"):
        beat(Peer(), 1)


def produce(setting: Setting, peer: Peer, client_id: str, *groups: str) -> None:
    data = HeartbeatData(clientID=client_id, producerDataSet=[ProducerData(groupName=group) for group in groups])
    setting.table.heartbeat(peer, data, JAVA, 1)


def test_a_reply_finds_its_client_by_the_newest_connection() -> None:
    setting = Setting()
    old, new, other = Peer(), Peer(), Peer()
    assert setting.table.reach("c@1") is None
    produce(setting, old, "c@1", "P", "Q")
    produce(setting, other, "c@2", "P")
    produce(setting, new, "c@1", "P")
    produce(setting, old, "c@1", "P", "Q")
    assert setting.table.reach("c@1") is new
    assert setting.table.reach("c@2") is other
    setting.table.on_close(new)
    assert setting.table.reach("c@1") is old
    setting.table.unregister(old, "P", None)
    assert setting.table.reach("c@1") is old
    setting.table.unregister(old, "Q", None)
    assert setting.table.reach("c@1") is None


def test_a_connection_that_changes_its_name_is_found_by_the_new_one_only() -> None:
    setting = Setting()
    peer = Peer()
    for number in range(100):
        produce(setting, peer, f"c@{number}", "P")
    assert setting.table.reach("c@98") is None
    assert setting.table.reach("c@99") is peer
    setting.clock.advance(200)
    assert setting.table.expire(120) == [peer]
    assert setting.table.reach("c@99") is None
    assert not setting.table._reached
    assert not setting.table._reached_as


def test_a_consumer_alone_gets_no_replies() -> None:
    setting = Setting()
    data = HeartbeatData(clientID="c@1", consumerDataSet=[ConsumerData(groupName="G")])
    setting.table.heartbeat(Peer(), data, JAVA, 1)
    assert setting.table.consumer_ids("G") == ["c@1"]
    assert setting.table.reach("c@1") is None
