"""auth/guard.py: what is like a request that was let in before is looked at by its signature only, and never longer."""

from collections.abc import Callable
from typing import cast

import pytest

import auth.guard
from auth.directory import AccessDirectory
from auth.guard import AccessGuard
from auth.model import Action, Decision, PolicyType, User, UserStatus, entry, resource_of
from auth.needs import BROKER, FieldsRule
from auth.settings import AuthKeys
from remoting.command import Command
from remoting.connection import Connection
from remoting.signing import Credentials, sign

ALICE, INNER = Credentials("alice", "alice-secret"), Credentials("inner", "inner-secret")
SEND, PULL = 310, 11
SAID_BY_MEMBERS = "raftHop"


class _Loop:
    now = 0.0

    def time(self) -> float:
        return self.now


class _Peer:
    loop = _Loop()
    attachments: dict[str, object]

    def __init__(self, host: str) -> None:
        self.peer = (host, 1)
        self.address = f"{host}:1"
        self.attachments = {}


class _Site:
    """A guard before a handler that takes sends and pulls; alice may send to topic "orders" from one network."""

    def __init__(self, strategy: str = "") -> None:
        self.directory = AccessDirectory(inner=INNER)
        self.allow("Topic:orders")
        keys = AuthKeys(authenticationEnabled=True, authenticationStrategy=strategy, authorizationEnabled=True)
        self.guard = AccessGuard(keys, self.directory, BROKER, "DefaultCluster", frozenset({SAID_BY_MEMBERS}))
        self.served = 0
        self._table = self.guard.guarded({SEND: self._serve, PULL: self._serve})

    def allow(self, resource: str, secret: str = ALICE.secret_key, status: UserStatus = UserStatus.ENABLE) -> None:
        found = resource_of(resource)
        assert found is not None
        allowed = entry(found, [Action.PUB], Decision.ALLOW, ["192.0.2.0/24"])
        users = {"alice": User("alice", secret, status=status)}
        self.directory.take(users, {"alice": {PolicyType.CUSTOM: (allowed,)}})

    def asks(
        self,
        who: Credentials = ALICE,
        host: str = "192.0.2.1",
        change: str = "",
        peer: _Peer | None = None,
        **fields: str,
    ) -> bool:
        """Tell whether a send to "orders", or to what `fields` say, is served; `peer`: over that connection."""
        request = Command.request(SEND, ext={"a": "producer", "b": "orders", **fields}, body=b"body")
        sign(request, who)
        if change == "body":
            request.body = b"bodY"
        elif change:
            request.ext[change] = "changed"
        before = self.served
        self._table[SEND](cast(Connection, peer or _Peer(host)), request)
        return self.served > before

    def _serve(self, _connection: Connection, _request: Command) -> None:
        self.served += 1


def test_the_like_of_what_was_let_in_is_decided_by_its_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    site = _Site()
    assert site.asks()
    monkeypatch.setattr(site.guard, "_unauthenticated", None)  # the long way fails from here on
    assert site.asks()
    assert site.asks(a="another producer")


@pytest.mark.parametrize("change", ["body", "a", "z", "Signature"])
def test_a_changed_one_is_refused_after_many_that_were_not(change: str) -> None:
    site = _Site()
    assert site.asks()
    assert site.asks()
    assert not site.asks(change=change)
    assert site.asks()


@pytest.mark.parametrize(
    "asks",
    [
        lambda site: site.asks(b="others"),
        lambda site: site.asks(host="198.51.100.1"),
        lambda site: site.asks(Credentials("alice", "wrong")),
        lambda site: site.asks(Credentials("mallory", ALICE.secret_key)),
        lambda site: site.asks(**{SAID_BY_MEMBERS: "1"}),
    ],
    ids=["topic", "address", "key", "user", "speaks for others"],
)
def test_what_is_not_alike_is_looked_at_anew(asks: Callable[[_Site], bool]) -> None:
    site = _Site()
    assert site.asks()
    assert not asks(site)
    assert site.asks()


def test_a_change_of_users_or_policies_holds_at_once() -> None:
    site = _Site()
    assert site.asks()
    site.allow("Topic:others")
    assert not site.asks()
    site.allow("Topic:orders")
    assert site.asks()
    site.allow("Topic:orders", secret="new")
    assert not site.asks()
    assert site.asks(Credentials("alice", "new"))
    site.allow("Topic:orders", secret="new", status=UserStatus.DISABLE)
    assert not site.asks(Credentials("alice", "new"))


def test_the_brokers_own_user_is_taken_by_either_of_two_keys() -> None:
    site = _Site()
    site.directory.take({"inner": User("inner", "new-secret")}, {})
    for _ in range(2):
        assert site.asks(INNER)
        assert site.asks(Credentials("inner", "new-secret"))


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth.guard, "LET_IN_MAX", 3)
    site = _Site()
    for last in range(10):
        assert site.asks(host=f"192.0.2.{last}")
    assert len(site.guard._let_in) == 3
    assert site.asks(host="192.0.2.0")


def test_rules_by_fields_look_at_no_other_field() -> None:
    for code, rule in BROKER.items():
        if not isinstance(rule, FieldsRule):
            continue
        fields = {name: f"value-{name}" for name in rule.names}
        more = {
            name: "x" for name in ("a", "b", "topic", "group", "consumerGroup", "producerGroup") if name not in fields
        }
        assert rule(Command.request(code, ext=fields), "c") == rule(Command.request(code, ext={**fields, **more}), "c")


STATEFUL = "org.apache.rocketmq.auth.authentication.strategy.StatefulAuthenticationStrategy"
MALLORY = Credentials("alice", "wrong")


@pytest.mark.parametrize("strategy", ["", "StatelessAuthenticationStrategy", STATEFUL])
def test_a_connection_that_has_proved_a_user_speaks_for_him_with_the_stateful_strategy_only(strategy: str) -> None:
    site, peer = _Site(strategy), _Peer("192.0.2.1")
    assert site.asks(peer=peer)
    assert site.asks(peer=peer)
    assert site.asks(MALLORY, peer=peer) == (strategy == STATEFUL)


def test_a_proof_is_one_connections_and_one_users_and_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    site, peer = _Site(STATEFUL), _Peer("192.0.2.1")
    assert site.asks()  # over another connection
    assert not site.asks(MALLORY, peer=peer)
    for _ in range(2):
        assert site.asks(peer=peer)
    assert site.asks(MALLORY, peer=peer)
    assert not site.asks(Credentials("inner", "wrong"), peer=peer)
    assert not site.asks(MALLORY, peer=peer, b="others")
    assert not site.asks(MALLORY, peer=peer, **{SAID_BY_MEMBERS: "1"})
    monkeypatch.setattr(_Loop, "now", 61.0)
    assert not site.asks(MALLORY, peer=peer)
    assert site.asks(peer=peer)
    assert site.asks(MALLORY, peer=peer)
    site.allow("Topic:orders", secret="new")
    assert not site.asks(peer=peer)
