"""auth/buckets.py and auth/quotas.py: who is over a quota, who is not, and that nothing is done without one."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import pytest

from auth.buckets import NAMES_MAX, TokenBuckets
from auth.directory import AccessDirectory
from auth.model import Resource, User, UserType
from auth.quota_keys import QUOTA_KEYS, QuotaKeys
from auth.quotas import BROKER_COUNTS, QuotaGuard
from auth.settings import AuthKeys
from broker.admin.broker import _AT_RUN_TIME
from broker.settings.config import load_broker_config
from namesrv.config import load_namesrv_config
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.connection import Connection, Handler
from remoting.errors import CommandError
from remoting.signing import ACCESS_KEY, Credentials
from runtime.config import ConfigError

SEND, PULL, HEARTBEAT = int(RequestCode.SEND_MESSAGE_V2), int(RequestCode.PULL_MESSAGE), int(RequestCode.HEART_BEAT)
COMMIT, ACK, NEW_TOPIC = (
    int(RequestCode.UPDATE_CONSUMER_OFFSET),
    int(RequestCode.ACK_MESSAGE),
    int(RequestCode.UPDATE_AND_CREATE_TOPIC),
)
USERS = {
    "admin": User("admin", "secret-of-admin", UserType.SUPER),
    "alice": User("alice", "secret-of-alice"),
    "bob": User("bob", "secret-of-bob"),
}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Peer:
    """A connection, as the guard sees it."""

    def __init__(self, host: str = "192.0.2.1") -> None:
        self.peer = (host, 1234)
        self.attachments: dict[str, Any] = {}
        self.replies: list[Command] = []
        self.closed = False

    def reply(self, _request: Command, response: Command) -> None:
        self.replies.append(response)

    def close(self) -> None:
        self.closed = True


class Site:
    """A guard around handlers that count what reaches them."""

    def __init__(
        self, *, users: bool = False, exists: Callable[[Resource], bool] = lambda _: False, **keys: Any
    ) -> None:
        self.clock = Clock()
        self.reached = 0
        directory = None
        if users:
            directory = AccessDirectory(inner=Credentials("inner", "secret-of-brokers"))
            directory.take(USERS, {})
        self.spoken_for: tuple[str, str] | None = None
        self.guard = QuotaGuard(
            QuotaKeys(**keys),
            BROKER_COUNTS,
            self.clock,
            directory,
            frozenset(),
            lambda _connection, _request: self.spoken_for,
            exists,
        )
        plain: dict[int, Handler] = dict.fromkeys((SEND, PULL, HEARTBEAT, COMMIT, ACK, NEW_TOPIC), self._served)
        self.plain = plain
        self.table = self.guard.served(plain, self.guard.limited(plain))

    def _served(self, _connection: Connection, _request: Command) -> Command:
        self.reached += 1
        return Command.response(0, body=b"x" * 1000)

    def ask(self, peer: Peer, code: int, user: str = "", body: bytes = b"", **fields: str) -> Command:
        """Ask for something; returns the answer."""
        request = Command.request(code, ext={ACCESS_KEY: user, **fields} if user else dict(fields), body=body)
        answer = self.table[code](cast(Connection, peer), request)
        return answer if isinstance(answer, Command) else peer.replies[-1]

    def asks(self, peer: Peer, code: int, times: int, user: str = "") -> int:
        """Ask so often; returns how often it was served."""
        return sum(self.ask(peer, code, user).code == 0 for _ in range(times))

    def refused(self) -> Mapping[tuple[str, str], int]:
        return {key: count for key, count in self.guard.refused.items() if count}


# ---- the bucket


def test_a_bucket_gives_a_span_at_once_and_then_its_rate() -> None:
    clock = Clock()
    buckets = TokenBuckets(clock)

    def given(times: int) -> int:
        count = 0
        for _ in range(times):
            if not buckets.wait("a", 10):
                buckets.take("a", 1)
                count += 1
        return count

    assert given(100) == 10
    assert buckets.wait("a", 10) == pytest.approx(0.1)
    clock.now += 0.35
    assert given(100) == 3
    clock.now += 3600
    assert given(100) == 10
    total = 0
    for _ in range(1000):
        clock.now += 0.013
        total += given(5)
    assert total == pytest.approx(130, abs=1)


def test_what_is_larger_than_a_span_is_let_in_and_paid_for() -> None:
    clock = Clock()
    buckets = TokenBuckets(clock)
    assert not buckets.wait("a", 1000)
    buckets.take("a", 5000)
    assert buckets.wait("a", 1000) == pytest.approx(4.001)
    clock.now += 4.0
    assert buckets.wait("a", 1000)
    clock.now += 0.002
    assert not buckets.wait("a", 1000)


def test_a_lower_limit_counts_at_once() -> None:
    clock = Clock()
    buckets = TokenBuckets(clock)
    assert not buckets.wait("a", 1000)
    assert not buckets.wait("a", 1)
    buckets.take("a", 1)
    assert buckets.wait("a", 1) == pytest.approx(1.0)


def test_a_full_table_forgets_who_was_heard_of_longest_ago() -> None:
    buckets = TokenBuckets(Clock(), names_max=3)
    for name in "abc":
        assert not buckets.wait(name, 1)
        buckets.take(name, 1)
    assert buckets.wait("a", 1), "asked about again: b is the one of longest ago"
    assert not buckets.wait("d", 1)
    assert len(buckets) == 3
    assert buckets.wait("a", 1)
    assert buckets.wait("c", 1)
    assert not buckets.wait("b", 1), "forgotten, with what it had taken"
    assert len(buckets) == 3


def test_addresses_without_end_take_a_bounded_table() -> None:
    site = Site(quotaAddressRequestsPerSecond=1)
    for number in range(NAMES_MAX + 500):
        site.ask(Peer(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"), SEND)
    assert len(site.guard._sends[0]) == NAMES_MAX


# ---- who is over it


def test_without_a_quota_handlers_are_reached_directly() -> None:
    site = Site()
    assert all(site.table[code] is site.plain[code] for code in site.plain)
    site.guard.take(QuotaKeys(quotaAddressRequestsPerSecond=5))
    assert site.table[SEND] is not site.plain[SEND]
    assert site.table[ACK] is site.plain[ACK]
    assert site.asks(Peer(), SEND, 10) == 5
    site.guard.take(QuotaKeys())
    assert all(site.table[code] is site.plain[code] for code in site.plain)


def test_who_sends_too_much_is_refused_and_nobody_else() -> None:
    site = Site(quotaAddressRequestsPerSecond=10)
    loud, again, quiet = Peer("192.0.2.1"), Peer("192.0.2.1"), Peer("192.0.2.2")
    assert site.asks(loud, SEND, 30) == 10
    assert site.asks(again, SEND, 5) == 0, "the same address"
    assert site.asks(quiet, SEND, 10) == 10
    answer = site.ask(loud, SEND)
    assert answer.code == 2
    assert answer.remark is not None
    assert answer.remark.startswith("[OVERLOAD]address 192.0.2.1: 10 sends a second are the quota")
    assert "(quotaAddressRequestsPerSecond); try again in 0.100 s" in answer.remark
    assert site.refused() == {("address", "requests"): 26}
    assert site.reached == 20
    site.clock.now += 1.0
    assert site.asks(loud, SEND, 30) == 10


def test_what_keeps_a_client_at_work_is_never_starved_by_what_it_sends() -> None:
    site = Site(quotaAddressRequestsPerSecond=1, quotaAddressBytesPerSecond=1)
    peer = Peer()
    assert site.asks(peer, SEND, 5) == 1
    for code in (HEARTBEAT, COMMIT, ACK):
        assert site.asks(peer, code, 50) == 50
    assert site.asks(peer, PULL, 5) == 1, "reads have a budget of their own"


def test_bytes_of_sends_and_of_what_reads_are_answered_with() -> None:
    site = Site(quotaAddressBytesPerSecond=3000)
    peer = Peer()
    assert site.ask(peer, SEND, body=bytes(2999)).code == 0
    assert site.ask(peer, SEND, body=bytes(2999)).code == 0
    answer = site.ask(peer, SEND, body=b"1")
    assert answer.code == 2
    assert "3000 bytes of sends a second" in str(answer.remark)
    assert site.asks(peer, PULL, 10) == 3
    assert "3000 bytes of reads a second" in str(site.ask(peer, PULL).remark)
    site.guard.answered(cast(Connection, peer), 30_000)
    site.clock.now += 5.0
    assert site.ask(peer, PULL).code == 2, "what a parked pull brought counts"
    assert site.refused() == {("address", "bytes"): 10}


def test_a_user_has_his_quota_wherever_he_asks_from_and_others_theirs() -> None:
    site = Site(users=True, quotaUserRequestsPerSecond=3, quotaUsers="bob requests=5; carol bytes=100000")
    here, there = Peer("192.0.2.1"), Peer("192.0.2.2")
    assert site.asks(here, SEND, 2, "alice") + site.asks(there, SEND, 9, "alice") == 3
    assert site.asks(here, SEND, 9, "bob") == 5
    assert "user bob: 5 sends a second are the quota (quotaUserRequestsPerSecond, quotaUsers)" in str(
        site.ask(here, SEND, "bob").remark
    )
    assert site.asks(there, SEND, 9, "carol") == 3
    assert site.asks(here, SEND, 1000, "inner") == 1000
    assert set(site.refused()) == {("user", "requests")}


def test_an_ipv6_network_of_64_bits_is_one_address() -> None:
    site = Site(quotaAddressRequestsPerSecond=4)
    peers = [Peer(f"2001:db8::{number}") for number in range(1, 9)]
    assert sum(site.asks(peer, SEND, 1) for peer in peers) == 4
    assert site.asks(Peer("2001:db8:0:1::1"), SEND, 1) == 1


# ---- connections


def test_one_connection_too_many_is_told_why_and_closed() -> None:
    site = Site(quotaAddressConnections=2)
    first, second, third, other = Peer(), Peer(), Peer(), Peer("192.0.2.9")
    for peer in (first, second, other):
        assert site.ask(peer, HEARTBEAT).code == 0
    answer = site.ask(third, SEND)
    assert (answer.code, third.closed) == (2, True)
    assert "address 192.0.2.1: 2 connections at a time are the quota (quotaAddressConnections)" in str(answer.remark)
    assert site.ask(first, SEND).code == 0
    site.guard.closed(cast(Connection, third))
    assert site.ask(Peer(), SEND).code == 2
    site.guard.closed(cast(Connection, second))
    site.guard.closed(cast(Connection, second))
    assert site.ask(Peer(), SEND).code == 0
    assert site.ask(Peer(), SEND).code == 2
    assert site.refused() == {("address", "connections"): 3}


def test_a_connection_counts_for_its_address_and_its_user_or_for_nobody() -> None:
    site = Site(users=True, quotaAddressConnections=2, quotaUserConnections=1)
    first, second, third = Peer(), Peer(), Peer()
    assert site.ask(first, SEND, "alice").code == 0
    assert "user alice" in str(site.ask(second, SEND, "alice").remark)
    assert site.ask(third, SEND, "bob").code == 0, "the refused one has left its address no place the fewer"
    site.guard.closed(cast(Connection, first))
    assert site.ask(Peer(), SEND, "alice").code == 0


def test_connections_that_are_open_when_a_quota_is_set_count_once_from_their_next_request() -> None:
    site = Site(users=True, quotaAddressConnections=3)
    first, second = Peer(), Peer()
    assert (site.ask(first, SEND, "alice").code, site.ask(second, SEND, "alice").code) == (0, 0)
    site.guard.take(QuotaKeys(quotaAddressConnections=3, quotaUserConnections=1))
    assert (site.ask(first, SEND, "alice").code, site.ask(second, SEND, "alice").code) == (0, 2)
    assert (first.closed, second.closed) == (False, True)
    assert site.ask(Peer(), SEND, "bob").code == 0
    assert site.ask(Peer(), SEND, "carol").code == 0
    assert "address 192.0.2.1: 3 connections" in str(site.ask(Peer(), SEND, "dave").remark)


def test_what_was_taken_while_there_was_no_quota_is_not_paid_for_later() -> None:
    site = Site(users=True, quotaUserBytesPerSecond=10_000)
    peer = Peer()
    assert site.ask(peer, SEND, "alice").code == 0
    site.guard.take(QuotaKeys(quotaUserBytesPerSecond=10_000, quotaUsers="alice bytes=0"))
    assert site.ask(peer, SEND, "alice", body=bytes(1_000_000)).code == 0
    site.guard.take(QuotaKeys(quotaUserBytesPerSecond=10_000))
    assert site.ask(peer, SEND, "alice").code == 0


def test_what_a_broker_asks_in_its_own_name_makes_what_it_must() -> None:
    site = Site(users=True, quotaAddressTopicsPerHour=1, quotaUserConnections=1)
    for peer in (Peer(), Peer(), Peer()):
        assert site.ask(peer, SEND, "inner").code == 0
        site.guard.creates_topic(peer, "t")
    assert site.refused() == {}


# ---- what is made


def test_topics_that_are_made_by_using_them() -> None:
    site = Site(quotaAddressTopicsPerHour=2, quotaAddressGroupsPerHour=1)
    peer = Peer()
    site.ask(peer, SEND)
    site.guard.creates_topic(peer, "one")
    site.guard.creates_topic(peer, "two")
    with pytest.raises(CommandError, match=r"2 new topics an hour are the quota.*three is not created") as refused:
        site.guard.creates_topic(peer, "three")
    assert refused.value.code == 2
    site.guard.creates_group(peer, "g")
    with pytest.raises(CommandError, match="1 new groups an hour"):
        site.guard.creates_group(peer, "h")
    site.guard.creates_topic(Peer("192.0.2.5"), "who has asked for nothing that is counted")
    site.clock.now += 1801.0
    site.guard.creates_topic(peer, "three")
    assert site.refused() == {("address", "topics"): 1, ("address", "groups"): 1}


def test_topics_made_by_request_count_for_their_user_unless_they_are_there_or_he_is_a_super_user() -> None:
    site = Site(users=True, exists=lambda resource: resource.name == "old", quotaUserTopicsPerHour=1)
    peer = Peer()
    assert site.ask(peer, NEW_TOPIC, "alice", topic="one").code == 0
    assert site.ask(peer, NEW_TOPIC, "alice", topic="old").code == 0
    answer = site.ask(peer, NEW_TOPIC, "alice", topic="two")
    assert answer.code == 2
    assert "user alice: 1 new topics an hour are the quota" in str(answer.remark)
    assert all(site.ask(peer, NEW_TOPIC, "admin", topic=f"t{number}").code == 0 for number in range(20))


def test_what_a_member_passes_on_is_counted_there_but_what_it_makes_counts_for_its_client() -> None:
    site = Site(quotaAddressRequestsPerSecond=1, quotaAddressConnections=1, quotaAddressTopicsPerHour=1)
    link = Peer("192.0.2.100")
    site.spoken_for = ("192.0.2.1", "")
    assert site.asks(link, SEND, 50) == 50
    site.guard.creates_topic(link, "one")
    site.spoken_for = ("192.0.2.2", "")
    site.ask(link, SEND)
    site.guard.creates_topic(link, "two")
    site.spoken_for = ("192.0.2.1", "")
    site.ask(link, SEND)
    with pytest.raises(CommandError, match=r"address 192\.0\.2\.1: 1 new topics"):
        site.guard.creates_topic(link, "three")


# ---- the keys


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"quotaAddressBytesPerSecond": "-1"}, "it takes 0"),
        ({"quotaUserRequestsPerSecond": "5"}, "take authenticationEnabled=true"),
        ({"quotaUsers": "alice requests=5"}, "take authenticationEnabled=true"),
        ({"quotaUsers": "alice"}, "it takes users"),
        ({"quotaUsers": "alice requests=x"}, "it takes users"),
        ({"quotaUsers": "alice requests=-5"}, "it takes users"),
        ({"quotaUsers": "alice requests=" + "9" * 5000}, "it takes users"),
        ({"quotaUsers": "alice speed=5"}, "it takes users"),
        ({"quotaUsers": "alice requests=5; alice bytes=5"}, "it takes users"),
    ],
)
def test_keys_that_cannot_be_used_are_refused(values: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load_broker_config(values)


def test_a_name_server_has_the_quotas_of_addresses() -> None:
    config, unknown = load_namesrv_config({"quotaAddressRequestsPerSecond": "7", "quotaUserRequestsPerSecond": "7"})
    assert config.quotaAddressRequestsPerSecond == 7
    assert unknown == ["quotaUserRequestsPerSecond"]


def test_every_quota_may_be_changed_at_run_time() -> None:
    assert QUOTA_KEYS <= _AT_RUN_TIME
    assert not QUOTA_KEYS & set(AuthKeys.__dataclass_fields__)


@pytest.fixture(autouse=True)
def _no_lines(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A flood of refusals is a few lines."""
    yield
    assert len(caplog.records) < 300
